#!/bin/sh
# Makes the demo model from nothing: environment, corpus, tokenizer, training, export,
# check. Everything on the way lies in work/ (not committed). An interrupted training
# goes on where it stopped; remove work/ to begin again.
set -eu
cd "$(dirname "$0")"

STEPS=4800
TEXTS=24000
PYTHON=${PYTHON:-python3}

[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
.venv/bin/python -m pip install --quiet --requirement requirements.txt
python=.venv/bin/python

if [ ! -f work/corpus.done ]; then
    $python corpus.py --count "$TEXTS"
    $python tokenizer.py
    touch work/corpus.done
fi
$python -u train.py --steps "$STEPS"
$python export.py
$python check.py
