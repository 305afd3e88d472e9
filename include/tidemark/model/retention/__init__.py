"""Values of retention, savepoints, erasure, verification and exports."""
