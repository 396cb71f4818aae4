"""The endpoint picker of the Gateway API inference extension: which replica a gateway sends a request to, over gRPC."""
