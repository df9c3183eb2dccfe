"""Node-local copies of hot data."""
