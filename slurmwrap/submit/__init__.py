"""From options and a template to one readable script, and to sbatch.

- ``request.build_request(options, known)``: what was typed, checked, as a JobRequest;
- ``templates.load_template(name, folders)`` and ``read_parameters``: what it is rendered with;
- ``script.render(request, template, parameters, rendering)``: the whole script;
- ``paths`` and ``cards``: what this machine and this cluster say about the request;
- ``sbatch.submit(script, ...)``: the job, or why there is none.
"""
