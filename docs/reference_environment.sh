#!/bin/sh
# An environment with the published JAX implementation, to time beside this package:
#
#     sh docs/reference_environment.sh FOLDER [SOURCE]
#     discorl bench learner --rule disco103 --reference FOLDER/bin/python
#
# SOURCE is a checkout of https://github.com/google-deepmind/disco_rl; by default, the commit below
# is fetched. The package called disco-rl on PyPI is something else.
set -eu
folder=$1
source=${2:-git+https://github.com/google-deepmind/disco_rl@7b619ba04ced4a47703fba9980f243a04a199d2d}
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet \
PINS
"$folder/bin/pip" install --quiet --no-deps "$source"
"$folder/bin/python" -c 'import disco_rl.agent, jax; print("jax", jax.__version__)'
