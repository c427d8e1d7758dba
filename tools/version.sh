#!/bin/sh
# Prints the version that meson.build names.
sed -n "s/^project([^:]*, version: '\([^']*\)'.*/\1/p" "$(dirname "$0")/../meson.build"
