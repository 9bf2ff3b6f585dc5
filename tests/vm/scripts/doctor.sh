#!/bin/bash
# doctor.sh: what `uct_info --doctor` finds is gone after its own remedy. Conditions that do not hide each other come together, since a report
# takes a second here.
. "${0%/*}/support.sh"

echo 'nobody:x:65534:65534:nobody:/tmp:/bin/bash' >>/etc/passwd
chmod 1777 /tmp
user=

# doctor: the report for root, or for nobody with these limits.
doctor() {
    case $user in
    nobody) su -s /bin/bash nobody -c "${limits:-:}; UCT_MODULE_DIR=$UCT_MODULE_DIR PATH=$PATH exec uct_info --doctor" ;;
    *) uct_info --doctor ;;
    esac >/tmp/client 2>&1
}

# The modules of the guest have numbers for names, and no list: as the real one, for one module.
modprobe() { insmod /modules/*-"$1".ko; }

# found WORDS COMMAND: the report has a finding with these words, whose remedy has this command.
found() {
    grep -E -A1 "^(OBSTACLE|LIMIT|ABSENT) .*($1)" /tmp/client >/tmp/found || fail "no finding '$1'"
    grep -qF -- "$2" /tmp/found || fail "the remedy of '$1' has no '$2'"
    echo "found: $(cat /tmp/found)"
}

# remedy WORDS COMMAND: as found, and the command is carried out.
remedy() {
    found "$1" "$2"
    eval "$2" || fail "the remedy '$2' failed"
}

# gone WORDS: no report has a finding with these words, after some seconds at most, as links take a while.
gone() {
    for _ in $(seq 20); do
        doctor
        grep -qE "^(OBSTACLE|LIMIT|ABSENT) .*($1)" /tmp/client || return 0
        sleep 0.2
    done
    fail "still found: $(grep -E "^(OBSTACLE|LIMIT|ABSENT) .*($1)" /tmp/client)"
}

uverbs=/dev/infiniband/uverbs0
cm=/dev/infiniband/rdma_cm
huge=/sys/kernel/mm/transparent_hugepage/enabled
doctor
remedy 'shared memory has small pages' 'echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled'
gone 'verbs|rdmacm|cma|memory'

rmmod rdma_ucm
ip link set eth0 mtu 1500
echo never >$huge
doctor
remedy "$cm cannot be opened" 'modprobe rdma_ucm'
remedy 'bytes of payload' 'ip link set eth0 mtu 4200'
remedy 'no huge pages' "echo madvise > $huge"
gone 'verbs|rdmacm|cma|memory'

rm $cm $uverbs
echo never >$huge
doctor
remedy "$cm cannot be opened" "mknod -m 666 $cm c $(tr : ' ' </sys/class/misc/rdma_cm/dev)"
remedy "$uverbs cannot be opened" "mknod -m 666 $uverbs c $(tr : ' ' </sys/class/infiniband_verbs/uverbs0/dev)"
# Fewer of them do here: their memory is cleared first.
found 'no huge pages' 'sysctl vm.nr_hugepages=512'
sysctl vm.nr_hugepages=8
gone 'verbs|rdmacm|cma|memory'
sysctl vm.nr_hugepages=0
echo madvise >$huge

# The package is taken away, not the device: that there is none would be wrong.
ip link set eth0 down
mkdir /tmp/providers
mv /usr/lib/x86_64-linux-gnu/libibverbs/* /tmp/providers
doctor
remedy 'is not active' 'ip link set eth0 up'
found 'shows none of the kernel.s RDMA devices: mlx5_0' 'install the package ibverbs-providers'
mv /tmp/providers/* /usr/lib/x86_64-linux-gnu/libibverbs
gone 'verbs|rdmacm|cma|memory'

user=nobody
limits='ulimit -l 0'
chmod 600 $uverbs $cm
echo 1 >/proc/sys/kernel/yama/ptrace_scope
doctor
remedy "$uverbs cannot be opened" "chmod 666 $uverbs"
remedy "$cm cannot be opened" "chmod 666 $cm"
found 'bytes of memory may be locked' 'memlock unlimited'
found 'ptrace_scope is 1' 'sysctl kernel.yama.ptrace_scope=0'
found 'ptrace_scope is 1' 'UCT_CMA_PTRACER=y'
limits='ulimit -l unlimited; export UCT_CMA_PTRACER=y'
gone 'verbs|rdmacm|cma|memory'

limits='ulimit -l unlimited'
echo 2 >/proc/sys/kernel/yama/ptrace_scope
doctor
remedy 'ptrace_scope permits no process' 'sysctl kernel.yama.ptrace_scope=0'
gone 'verbs|rdmacm|cma|memory'

user=
rdma link del mlx5_0
doctor
found 'the kernel has no RDMA device' 'rdma link add rxe0 type rxe netdev NETDEV'
rdma link add rxe0 type rxe netdev eth0 || fail 'the remedy for a machine without a device'
gone 'verbs|rdmacm|cma|memory'
