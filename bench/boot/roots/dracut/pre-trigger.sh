#!/bin/sh
# Makes the modelled disk before anything looks for it.
/sbin/boot-rig-disk
