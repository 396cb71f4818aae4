"""GPU metrics from exporters and drivers: utilisation for pages, health for the engine."""
