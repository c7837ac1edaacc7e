package broker

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxJoinFile is the size in bytes above which a file is not a join file.
const maxJoinFile = 1 << 20

// ReadJoinFile reads a join file that is valid at the time now; "-" is stdin. Every
// error names the file, what is wrong with it and the remedy.
func ReadJoinFile(path string, stdin io.Reader, now time.Time) (*JoinFile, error) {
	f, err := ReadOldJoinFile(path, stdin)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf(
			"%w: specify the path of the join file; if you have none, ask the administrator of the broker for one: "+
				"subctl invite writes one for one cluster, subctl deploy-broker and subctl recover-broker-info write general ones",
			err,
		)
	}
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(f.checkTrust(), f.Expired(now)); err != nil {
		return nil, fmt.Errorf("%s %w", joinFileName(path), err)
	}
	return f, nil
}

// joinFileName returns the name of a join file for messages.
func joinFileName(path string) string {
	if path == "-" {
		return "join file on stdin"
	}
	return "join file " + path
}

// unreadable returns the error about a join file that cannot be read. Callers tell what to do if
// there is none.
func unreadable(err error) error {
	err = fmt.Errorf("reading join file: %w", err)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: specify the path of a join file that you can read", err)
}

// ReadOldJoinFile reads a join file for its keys; "-" is stdin. The token may have expired, and
// a file of upstream's subctl has no signing key.
func ReadOldJoinFile(path string, stdin io.Reader) (*JoinFile, error) {
	in := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, unreadable(err)
		}
		defer file.Close()
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, maxJoinFile+1))
	if err != nil {
		return nil, unreadable(err)
	}
	if len(content) > maxJoinFile {
		return nil, fmt.Errorf("%s %w", joinFileName(path), errForeign)
	}
	f, err := DecodeJoinFile(content)
	if err != nil {
		return nil, fmt.Errorf("%s %w", joinFileName(path), err)
	}
	return f, nil
}

// CheckWritable returns an error if WriteFile cannot write to a path because of what is there.
// It writes nothing.
func CheckWritable(path string) error {
	_, err := pathToWrite(path)
	return err
}

// pathToWrite returns the path of the file to write: the file that a symbolic link refers to. A
// device or a pipe is refused: replacing it would break other programs.
func pathToWrite(path string) (string, error) {
	if path == "" {
		return "", errors.New(`"" is not the name of a file: specify a file, or - for stdout`)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%q is in a directory that does not exist: create it first", path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return "", fmt.Errorf(
				"%q is a symbolic link to a file that does not exist: delete it, or specify another file", path)
		}
		return path, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%q is a directory: specify a file in it, such as %s", path,
			filepath.Join(path, JoinFileName))
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%q is not a regular file: specify a file, or - for stdout", path)
	}
	return filepath.EvalSymlinks(path)
}

// NewFile is a join file that is not written yet. Its place is taken: who has a NewFile can write
// to its directory, so that nothing is created on a broker for a file that cannot be written.
type NewFile struct {
	path      string // to write
	temporary *os.File
}

// CreateFile takes the place of a join file, which nobody but its owner will read. It refuses to
// replace anything but a regular file. The caller must call Discard in the end.
func CreateFile(path string) (*NewFile, error) {
	named := path
	path, err := pathToWrite(path)
	if err != nil {
		return nil, fmt.Errorf("writing join file: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("writing join file %s: %w: specify a file in a directory that you can write",
			named, withoutPath(err))
	}
	return &NewFile{path, temporary}, nil
}

// withoutPath returns the error about a file without its name, which is temporary.
func withoutPath(err error) error {
	var about *fs.PathError
	if errors.As(err, &about) {
		return about.Err
	}
	return err
}

// Discard gives the place up, unless the file was written.
func (n *NewFile) Discard() {
	_ = n.temporary.Close()
	_ = os.Remove(n.temporary.Name())
}

// Write writes the join file atomically. If there is a file, it is kept under another name, which
// ends in the time now. Write returns that name.
func (n *NewFile) Write(f *JoinFile, now time.Time) (kept string, err error) {
	content, err := f.Encode()
	if err != nil {
		return "", err
	}
	_, err = n.temporary.Write(content)
	if err2 := n.temporary.Sync(); err == nil {
		err = err2
	}
	if err2 := n.temporary.Close(); err == nil {
		err = err2
	}
	if err != nil {
		return "", fmt.Errorf("writing join file %s: %w", n.path, withoutPath(err))
	}
	if _, err := os.Lstat(n.path); err == nil {
		kept = spareName(n.path, now)
		if err := os.Rename(n.path, kept); err != nil {
			return "", fmt.Errorf("keeping the old join file: %w", err)
		}
	}
	if err := os.Rename(n.temporary.Name(), n.path); err != nil {
		return kept, fmt.Errorf("writing join file %s: %w", n.path, err)
	}
	return kept, nil
}

// WriteFile writes the join file at once: see CreateFile and Write.
func (f *JoinFile) WriteFile(path string, now time.Time) (kept string, err error) {
	file, err := CreateFile(path)
	if err != nil {
		return "", err
	}
	defer file.Discard()
	return file.Write(f, now)
}

// spareName returns the name that upstream gives to an older file, with a number if that
// name is in use.
func spareName(path string, now time.Time) string {
	name := path + "." + strings.ReplaceAll(now.Format(time.RFC3339), ":", "_")
	for i, spare := 2, name; ; i++ {
		if _, err := os.Lstat(spare); err != nil {
			return spare
		}
		spare = fmt.Sprintf("%s.%d", name, i)
	}
}
