"""Output of nvidia-smi: the matrix of links, the peer-to-peer matrix, NVLink states, and the XML log."""
