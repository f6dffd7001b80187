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
    absl-py==2.5.1 attrs==26.1.0 chex==0.1.90 cloudpickle==3.1.2 decorator==5.3.1 \
    distrax==0.1.5 dm-env==1.6 dm-haiku==0.0.17 dm-tree==0.1.10 gast==0.7.0 \
    immutabledict==4.3.1 jax==0.6.2 jaxlib==0.6.2 jmp==0.0.4 ml_collections==1.1.0 \
    ml_dtypes==0.6.0 numpy==2.4.6 opt_einsum==3.4.0 optax==0.2.8 PyYAML==6.0.3 rlax==0.1.7 \
    scipy==1.17.1 six==1.17.0 tabulate==0.10.0 tensorflow-probability==0.25.0 toolz==1.2.0 \
    typing_extensions==4.16.0 wrapt==2.5.2
"$folder/bin/pip" install --quiet --no-deps "$source"
"$folder/bin/python" -c 'import disco_rl.agent, jax; print("jax", jax.__version__)'
