"""The only place that talks to Slurm.

Everything starts from one ``SlurmCommands(config.slurm)``:

- ``live.LiveJobs(commands, card_gres, clock)``: the runs on nodes now, with their cards;
- ``accounting.AccountingRecords(commands, card_gres)``: slurmdbd's records of a window;
- ``control.JobControl(commands, live)``: re-read, cancel, leave a reason in AdminComment;
- ``associations.read_associations(commands)``: who may do what, and the tree of accounts;
- ``reports.gpu_usage(commands, start, end)``: what sreport says, for reconciliation;
- ``checks.check_slurm(config, commands, clock)``: what would silently ruin the rest.

Whatever can't be asked raises SlurmUnavailableError, SlurmCommandError or SlurmOutputError: an
empty answer always means that Slurm answered, and had nothing.
"""
