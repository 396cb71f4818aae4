"""The drawing of a fabric: one HTML or SVG file that needs no server."""
