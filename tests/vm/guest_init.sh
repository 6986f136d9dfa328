#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Process 1 of the guest (vm.py): runs /commands/NAME one after the other, hands their output and exit status to the host
# as a tar archive on the second namespace of the drive, and switches off.
# Bits depend on what --bulk auto measures: cases.py pins it as well.
export PATH=/bin HOME=/tmp SLUICE_BULK=own
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir /tmp/out
cd /tmp || exit 1
for command in /commands/*; do
    name=${command##*/}
    echo "vm: $name starts after $(cut -d ' ' -f 1 /proc/uptime) s"
    timeout -s KILL "$1" sh "$command" >"/tmp/out/$name.stdout" 2>"/tmp/out/$name.stderr" </dev/null
    echo $? >"/tmp/out/$name.status"
    cut -d ' ' -f 1 /proc/uptime >"/tmp/out/$name.end"
done
tar -C /tmp/out -cf /dev/nvme0n2 .
sync
poweroff -f
