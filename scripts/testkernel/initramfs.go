package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// first is the first process of the guest: it runs what the file /tests lists.
//
//go:embed init.sh
var first []byte

// tools are the commands that tests and init.sh run. A command that is in the image already is not
// replaced.
var tools = strings.Fields(`
	sh cat chmod cp cut env false grep head ln ls mkdir mknod mount mv nproc ps pgrep pkill readlink rm sed sleep sort stty tail timeout touch tr true uname wc
	ip bridge ss tc nft ping setpriv socat swanctl sysctl tcpdump kmod`)

// initramfs makes the guest's file system, an open file without a name.
func initramfs(ctx context.Context, k kernel, suites []suite) (_ *os.File, err error) {
	work, err := os.MkdirTemp("", "testkernel-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	root := filepath.Join(work, "root")
	binaries := filepath.Join(work, "tests")
	if _, err := output(ctx, "", "scripts/image/rootfs.sh", root, "bin/wireguard-go"); err != nil {
		return nil, err
	}
	binary := func(s suite) string { // of its own for packages with the same last name
		return filepath.Join(binaries, strings.ReplaceAll(filepath.Clean(s.pkg), "/", "-")+".test")
	}
	for _, s := range suites {
		if _, err := output(ctx, "", "go", "test", "-c", "-ldflags", "-s -w", "-o", binary(s), s.pkg); err != nil {
			return nil, err
		}
	}
	image, err := os.CreateTemp(work, "initramfs")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			image.Close()
		}
	}()
	a := newArchive(image)
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/root"} {
		a.dir(dir, 0o755)
	}
	a.dir("/tmp", 0o777|fs.ModeSticky)
	users, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil {
		return nil, err
	}
	a.put("/etc/passwd", 0o644, append(users, "tcpdump:x:100:65534::/:/nologin\n"...)) // whom tcpdump becomes
	a.tree(root, "/")
	if err := a.programs(ctx); err != nil {
		return nil, err
	}
	a.tree(filepath.Join(k.dir, "lib"), "/lib")
	list := ""
	for _, s := range suites {
		// A test finds its testdata, and that of the repository, where it would here.
		if _, err := os.Stat(binary(s)); err != nil {
			return nil, fmt.Errorf("%s has no tests: %w", s.pkg, err)
		}
		dir := filepath.Join("/src", s.pkg)
		a.file(binary(s), filepath.Join(dir, "test"))
		if data := filepath.Join(s.pkg, "testdata"); exists(data) {
			a.tree(data, filepath.Join(dir, "testdata"))
		}
		list += fmt.Sprintf("%s %s %s\n", dir, cmp.Or(s.bench, "-"), cmp.Or(s.run, "."))
	}
	a.tree("testdata", "/src/testdata")
	a.put("/tests", 0o644, []byte(list))
	a.put("/environment", 0o644, []byte("export "+strings.Join(environment, " ")+"\n"))
	a.put("/init", 0o755, first)
	return image, a.close()
}

// programs adds the tools, and the libraries that they are linked with.
func (a *archive) programs(ctx context.Context) error {
	for _, tool := range tools {
		file, err := exec.LookPath(tool)
		if err != nil {
			return fmt.Errorf("%w: run scripts/prereqs.sh", err)
		}
		a.file(file, filepath.Join("/usr/bin", tool))
		// A static program is no error of ours: ldd says so and fails.
		said, err := exec.CommandContext(ctx, "ldd", file).Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return err
		}
		for word := range strings.FieldsSeq(string(said)) {
			if strings.HasPrefix(word, "/") {
				a.file(word, word)
			}
		}
	}
	a.put("/usr/sbin/modprobe", fs.ModeSymlink|0o777, []byte("../bin/kmod"))
	return a.err
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
