"""The HTTP front of services: which replica a request goes to, and HAProxy that carries it there."""
