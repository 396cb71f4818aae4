"""The lease of a federation on its jobs in this cluster: renewed by the front, enforced here."""
