package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// furnish turns a fresh mount namespace into the file system of a machine of its own: the machine's
// /usr, its /etc under a layer of the node's, and /var, /opt and /run of the node alone. Sources
// are held open and named by descriptor, because the state directory may well lie below what is
// covered here.
func furnish(state, bin *os.File) error {
	at := func(dir *os.File, elem ...string) string {
		return filepath.Join(append([]string{fmt.Sprintf("/proc/self/fd/%d", dir.Fd())}, elem...)...)
	}
	var steps steps
	steps.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	steps.mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")

	// A /sys that shows this network namespace, with the machine's cgroups in it.
	aside := at(state, "cgroup")
	steps.mkdir(aside)
	steps.mount("/sys/fs/cgroup", aside, "", unix.MS_BIND|unix.MS_REC, "")
	steps.mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	steps.mount(aside, "/sys/fs/cgroup", "", unix.MS_MOVE, "")

	// A copy of somebody's named network namespace would keep it alive after they delete it.
	steps.do(func() error { return detachBelow("/run/netns") })
	steps.mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=256m")
	for _, dir := range []string{"/var", "/opt"} {
		steps.mount("tmpfs", dir, "tmpfs", unix.MS_NODEV, "mode=755,size=64m")
	}
	steps.mkdir("/run/lock", "/var/cache", "/var/tmp", "/opt/cni/bin", "/var/lib/cni")
	steps.do(func() error { return errors.Join(os.Symlink("/run", "/var/run"), os.Symlink("/run/lock", "/var/lock")) })

	steps.mkdir(at(state, "etc"), at(state, "etc.work"))
	steps.mount("overlay", "/etc", "overlay", 0,
		fmt.Sprintf("lowerdir=/etc,upperdir=%s,workdir=%s", at(state, "etc"), at(state, "etc.work")))
	// Not layers but directories: overlayfs, which containerd uses, cannot stand on overlayfs; and
	// logs can be read from outside.
	for _, dir := range []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/log"} {
		steps.mkdir(at(state, dir), dir)
		steps.mount(at(state, dir), dir, "", unix.MS_BIND, "")
	}
	steps.mkdir(configDir, binDir, "/var/log/pods", "/etc/cni/net.d")
	steps.mount(at(state, "kubernetes"), configDir, "", unix.MS_BIND, "")
	steps.mount(at(bin), binDir, "", unix.MS_BIND, "")

	// The kubelet wants these values, and could only have them for the whole machine. It is shown
	// them.
	for key, value := range map[string]string{
		"vm/overcommit_memory": "1",
		"kernel/panic":         "10",
		"kernel/panic_on_oops": "1",
	} {
		file := at(state, "sysctl-"+strings.ReplaceAll(key, "/", "."))
		steps.do(func() error { return os.WriteFile(file, []byte(value+"\n"), 0o644) })
		steps.mount(file, "/proc/sys/"+key, "", unix.MS_BIND, "")
	}
	// What pods mount with Bidirectional or HostToContainer is to travel.
	steps.mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
	return steps.err
}

// steps are done until one fails.
type steps struct{ err error }

func (s *steps) do(f func() error) {
	if s.err == nil {
		s.err = f()
	}
}

func (s *steps) mkdir(dirs ...string) {
	for _, dir := range dirs {
		s.do(func() error { return os.MkdirAll(dir, 0o755) })
	}
}

func (s *steps) mount(source, target, kind string, flags uintptr, data string) {
	s.do(func() error {
		if err := unix.Mount(source, target, kind, flags, data); err != nil {
			return fmt.Errorf("mounting %s on %s (%s): %w", source, target, data, err)
		}
		return nil
	})
}

// detachBelow unmounts a directory and all below it.
func detachBelow(dir string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(b)) {
		if at := strings.Fields(line)[4]; at == dir || strings.HasPrefix(at, dir+"/") {
			points = append(points, at)
		}
	}
	for _, at := range slices.Backward(points) {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", at, err)
		}
	}
	return nil
}
