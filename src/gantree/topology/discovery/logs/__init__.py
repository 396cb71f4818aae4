"""What benchmarks print: figures that were measured on a fabric, not the fabric."""
