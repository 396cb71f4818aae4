"""The drawing of a fabric: one self-contained HTML or SVG file."""
