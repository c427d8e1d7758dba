#!/bin/sh
# Prints the version in meson.build.
sed -n "s/^project([^:]*, version: '\([^']*\)'.*/\1/p" "$(dirname "$0")/../meson.build"
