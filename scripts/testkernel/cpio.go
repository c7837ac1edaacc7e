package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// archive writes a file system as the kernel reads one at boot: an uncompressed cpio archive,
// "newc" (https://docs.kernel.org/driver-api/early-userspace/buffer-format.html). All files are
// root's.
type archive struct {
	out  *bufio.Writer
	seen map[string]bool // paths that are in it
	err  error           // the first; what comes after it does nothing
}

func newArchive(out io.Writer) *archive {
	return &archive{out: bufio.NewWriterSize(out, 1<<20), seen: map[string]bool{"/": true}}
}

// close ends the archive.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil)
	if a.err == nil {
		a.err = a.out.Flush()
	}
	return a.err
}

// tree adds what is in a folder of this machine.
func (a *archive) tree(from, to string) {
	a.fail(filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		under, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		at := path.Join(to, filepath.ToSlash(under))
		switch info, err := d.Info(); {
		case err != nil:
			return err
		case d.IsDir():
			a.dir(at, info.Mode())
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(file)
			if err != nil {
				return err
			}
			a.put(at, info.Mode(), []byte(target))
		default:
			a.file(file, at)
		}
		return a.err
	}))
}

// file adds one file of this machine, whatever links lead to it.
func (a *archive) file(from, to string) {
	content, err := os.ReadFile(from)
	a.fail(err)
	info, err := os.Stat(from)
	a.fail(err)
	if a.err == nil {
		a.put(to, info.Mode(), content)
	}
}

// put adds a file or, with fs.ModeSymlink, a link, and the folders it is in. What is there already
// stays.
func (a *archive) put(at string, mode fs.FileMode, content []byte) {
	at = merged(at)
	if a.seen[at] {
		return
	}
	a.dir(path.Dir(at), 0o755)
	a.seen[at] = true
	kind := uint32(0o100000)
	if mode&fs.ModeSymlink != 0 {
		kind = 0o120000
	}
	a.entry(at[1:], kind|uint32(mode.Perm()), content)
}

// dir adds a folder, and those it is in.
func (a *archive) dir(at string, mode fs.FileMode) {
	at = merged(at)
	if a.seen[at] {
		return
	}
	a.dir(path.Dir(at), 0o755)
	a.seen[at] = true
	bits := uint32(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	a.entry(at[1:], 0o040000|bits, nil)
}

// merged is a path in a file system whose /bin, /lib, … are links to those of /usr, as Debian's.
// The kernel would put a folder in the place of such a link.
func merged(at string) string {
	first, _, _ := strings.Cut(at[1:], "/")
	switch first {
	case "bin", "sbin", "lib", "lib64":
		if at != "/"+first {
			return "/usr" + at
		}
	}
	return at
}

// entry writes one member. An inode number each: the kernel takes equal ones for hard links.
func (a *archive) entry(name string, mode uint32, content []byte) {
	if a.err != nil {
		return
	}
	header := []uint32{
		uint32(len(a.seen)),
		mode,
		0,
		0,
		1,
		0,
		uint32(len(content)),
		0,
		0,
		0,
		0,
		uint32(len(name) + 1),
		0,
	}
	a.write([]byte("070701"))
	for _, field := range header {
		a.write(fmt.Appendf(nil, "%08x", field))
	}
	a.write([]byte(name + "\x00"))
	a.pad(6 + 8*len(header) + len(name) + 1)
	a.write(content)
	a.pad(len(content))
}

// pad fills what is n bytes long up to a multiple of 4.
func (a *archive) pad(n int) { a.write(make([]byte, -n&3)) }

func (a *archive) write(b []byte) {
	if a.err == nil {
		_, a.err = a.out.Write(b)
	}
}

func (a *archive) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}
