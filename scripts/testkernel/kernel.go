package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// metapackage depends on the package of Debian's newest kernel for clouds: small, and with
// everything that nodes have.
const metapackage = "linux-image-cloud-amd64"

// moduleTrees are the folders of modules that networks need, of a kernel's kernel/.
var moduleTrees = []string{"arch", "crypto", "lib", "net", "drivers/net"}

// kernel is a kernel package, unpacked in the cache: vmlinuz and lib/modules/<release>, with the
// maps that modprobe reads.
type kernel struct {
	name string // of the package
	dir  string
}

// fetch returns the newest kernel of the machine's package sources, from the cache if it is there.
func fetch(ctx context.Context) (kernel, error) {
	caches, err := os.UserCacheDir()
	if err != nil {
		return kernel{}, err
	}
	caches = filepath.Join(caches, "subctl", "testkernel")
	name, err := newest(ctx)
	if err != nil {
		return kernel{}, err
	}
	k := kernel{name: name, dir: filepath.Join(caches, name)}
	if _, err := os.Stat(k.dir); err == nil {
		return k, nil
	}
	// What is in the cache is whole: it was renamed when it was.
	if err := os.MkdirAll(caches, 0o755); err != nil {
		return kernel{}, err
	}
	tmp, err := os.MkdirTemp(caches, ".unpacking-")
	if err != nil {
		return kernel{}, err
	}
	defer os.RemoveAll(tmp)
	if err := unpack(ctx, name, tmp); err != nil {
		return kernel{}, fmt.Errorf("fetching %s: %w", name, err)
	}
	if err := os.Rename(filepath.Join(tmp, "kernel"), k.dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return kernel{}, err
	}
	return k, nil
}

// newest asks apt which package the metapackage stands for.
func newest(ctx context.Context) (string, error) {
	depends := func() (string, error) {
		said, err := output(ctx, "", "apt-cache", "depends", "--important", metapackage)
		_, name, _ := strings.Cut(said, "Depends: ")
		name, _, _ = strings.Cut(name, "\n")
		return strings.TrimSpace(name), err
	}
	if name, err := depends(); err == nil && name != "" {
		return name, nil
	}
	// Fresh containers have no lists of packages.
	if _, err := output(ctx, "", "apt-get", "update", "-qq"); err != nil {
		return "", fmt.Errorf("apt knows no package %s and cannot update its lists: run apt-get update as root: %w",
			metapackage, err)
	}
	name, err := depends()
	if err == nil && name == "" {
		err = errors.New("it depends on nothing that apt knows")
	}
	if err != nil {
		return "", fmt.Errorf("asking apt for %s: %w", metapackage, err)
	}
	return name, nil
}

// unpack downloads a kernel package into dir and makes dir/kernel of it.
func unpack(ctx context.Context, name, dir string) error {
	if _, err := output(ctx, dir, "apt-get", "download", "-qq", name); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("apt-get download left %d packages in %s: one was wanted", len(packages), dir)
	}
	if _, err := output(ctx, dir, "dpkg", "-x", packages[0], "all"); err != nil {
		return err
	}
	release := strings.TrimPrefix(name, "linux-image-")
	from := filepath.Join(dir, "all", "lib/modules", release)
	to := filepath.Join(dir, "kernel", "lib/modules", release)
	moves := map[string]string{filepath.Join(dir, "all/boot/vmlinuz-"+release): filepath.Join(dir, "kernel/vmlinuz")}
	for _, tree := range moduleTrees {
		moves[filepath.Join(from, "kernel", tree)] = filepath.Join(to, "kernel", tree)
	}
	for _, list := range []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"} {
		moves[filepath.Join(from, list)] = filepath.Join(to, list)
	}
	for from, to := range moves {
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
	}
	_, err = output(ctx, dir, "depmod", "-b", "kernel", release)
	return err
}

// output runs a command in dir and returns what it printed.
func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	return string(out), nil
}
