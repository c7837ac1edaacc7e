package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"subctl/sdewan/rest"
)

// version is that of the format of the file.
const version = 1

// maxFile bounds how much of a file is read, in bytes.
const maxFile = 256 << 20

// state is the content of the file. It has secrets.
type state struct {
	Version int                        `json:"version"`
	Objects map[string]json.RawMessage `json:"objects"` // lists, by mwan3/policies and so on
	Stopped []string                   `json:"stopped,omitempty"`
	// Awaiting is rest.Config.Awaiting. Absent means false: a service was started, or the program
	// that wrote the file did not wait.
	Awaiting bool `json:"awaiting,omitempty"`
}

// load reads a file, and returns which objects in it this program does not accept, and why. Those
// are not in the Config, which awaits that somebody finishes it: a zone or a tunnel that is missing
// would let packets through.
func load(name string) (c rest.Config, leftOut []string, err error) {
	c, leftOut, err = parse(name)
	if err != nil {
		return c, nil, fmt.Errorf(
			"the state in %s cannot be used: %w. Restore it from a copy, or move it away, so that the CNF starts with nothing",
			name, err)
	}
	c.Awaiting = c.Awaiting || len(leftOut) > 0
	return c, leftOut, nil
}

func parse(name string) (c rest.Config, leftOut []string, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return rest.Config{Awaiting: true}, nil, nil
	}
	if err != nil {
		return c, nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return c, nil, err
	}
	var st state
	if err := decode(b, &st); err != nil {
		return c, nil, err
	}
	if st.Version != version {
		return c, nil, fmt.Errorf("it has the version %d, and this program reads version %d", st.Version, version)
	}
	for _, l := range rest.Collections {
		var all []json.RawMessage
		if err := json.Unmarshal(cmpOr(st.Objects[l.String()], "[]"), &all); err != nil {
			return c, nil, fmt.Errorf("%s is not a list", l)
		}
		delete(st.Objects, l.String())
		for i, raw := range all {
			if err := take(&c, l, i, raw); err != nil {
				leftOut = append(leftOut, err.Error())
			}
		}
	}
	for unknown := range st.Objects {
		return c, nil, fmt.Errorf("it has objects of the unknown type %.60q", unknown)
	}
	for _, n := range st.Stopped {
		if !slices.Contains(rest.ServiceNames, n) {
			return c, nil, fmt.Errorf("it has the unknown service %.60q", n)
		}
	}
	c.Stopped = st.Stopped
	c.Awaiting = st.Awaiting
	return c, leftOut, nil
}

// take adds an object of a file, with its place in a list, to a Config, or returns an error.
func take(c *rest.Config, l *rest.Collection, i int, raw json.RawMessage) error {
	o := l.New()
	if err := decode(raw, o); err != nil {
		return fmt.Errorf("%s, object %d: %w", l, i+1, err)
	}
	if err := l.Check(o); err != nil {
		return fmt.Errorf("%s/%.60s: %w", l, o.GetName(), err)
	}
	if _, exists := c.Get(l, o.GetName()); exists {
		return fmt.Errorf("%s/%s is there twice", l, o.GetName())
	}
	c.Put(l, o)
	return nil
}

func cmpOr(b json.RawMessage, otherwise string) []byte {
	if len(bytes.TrimSpace(b)) == 0 {
		return []byte(otherwise)
	}
	return b
}

// before is the end of the name of the copy that replace keeps.
const before = ".before"

// replace writes a Config to a file that has more, and keeps the file as it was under another name:
// what is left out does not come back by itself, for example with an older program, and is not
// lost. Without a copy, nothing is written.
func replace(name string, c *rest.Config) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := write(name+before, b); err != nil {
		return err
	}
	return save(name, c)
}

// unfinished is the part after the name of the state file in the names of the files that save
// renames.
const unfinished = ".subctl-"

// removeUnfinished removes the files of programs that were killed during save. They contain
// secrets, and take room.
func removeUnfinished(name string) error {
	folder := filepath.Dir(name)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // save returns the error
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(name)+unfinished) {
			err = errors.Join(err, os.Remove(filepath.Join(folder, e.Name())))
		}
	}
	return err
}

// save writes a file: whenever the machine stops, the file is the old or the new one.
func save(name string, c *rest.Config) error {
	st := state{Version: version, Objects: map[string]json.RawMessage{}, Stopped: c.Stopped, Awaiting: c.Awaiting}
	for _, l := range rest.Collections {
		list, err := json.Marshal(c.List(l))
		if err != nil {
			return err
		}
		st.Objects[l.String()] = list
	}
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return write(name, b)
}

// write replaces a file.
func write(name string, b []byte) (err error) {
	folder := filepath.Dir(name)
	f, err := os.CreateTemp(folder, filepath.Base(name)+unfinished+"*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
