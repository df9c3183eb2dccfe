"""From options and a template to one readable script, and to sbatch."""
