CREATE DATABASE IF NOT EXISTS slurm_acct;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct.* TO slurm@localhost;
