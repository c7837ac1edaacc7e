package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"subctl/sdewan/rest"
)

// maxObjects is the maximum number of objects in a collection, and maxZones the maximum number of
// zones: each zone has a rule for each other one.
const (
	maxObjects = 10000
	maxZones   = 128
)

// maxSize is the maximum size of all objects, in bytes, as sizeOf counts. The controller keeps all
// objects of a CNF in memory while it compares them, and a CNF that holds more than the controller
// reads would be cut off from it for good.
const maxSize = 12 << 20

// most returns how many objects a collection holds at most.
func most(l *rest.Collection) int {
	if l == rest.Zones {
		return maxZones
	}
	return maxObjects
}

// The reasons for which a Store refuses a change, besides a *rest.Refusal.
var (
	errMissing  = errors.New("is not defined")
	errConflict = errors.New("exists")
)

// fullError names the objects of which a CNF can hold no more.
type fullError string

func (e fullError) Error() string {
	return fmt.Sprintf("the CNF holds %s and no more: delete others", string(e))
}

// Store holds the objects of a CNF. Readers see a state as a whole, and never wait for writers; a
// change that is refused changes nothing.
type Store struct {
	file    string
	leftOut []string

	mu      sync.Mutex // of writers
	size    int        // of all objects; see maxSize
	current atomic.Pointer[rest.Config]
}

// OpenStore returns the Store whose state is in a file, or in memory alone if the name is "".
// Without a file, the state has no objects, and awaits its configuration. A file that is damaged is
// an error, and stays as it is. Objects in it that this program does not accept are left out: see
// LeftOut.
func OpenStore(file string) (*Store, error) {
	s := &Store{file: file}
	c := rest.Config{Awaiting: true}
	if file != "" {
		var err error
		if c, s.leftOut, err = load(file); err != nil {
			return nil, err
		}
		if len(s.leftOut) > 0 {
			if err := replace(file, &c); err != nil {
				return nil, fmt.Errorf("writing %s without %s: %w", file, strings.Join(s.leftOut, ", "), err)
			}
		}
		if err := errors.Join(removeUnfinished(file), removeUnfinished(file+before)); err != nil {
			return nil, fmt.Errorf("removing unfinished copies of %s: %w", file, err)
		}
	}
	for _, l := range rest.Collections {
		for _, o := range c.List(l) {
			s.size += sizeOf(o)
		}
	}
	s.current.Store(&c)
	return s, nil
}

// LeftOut returns which objects of the file are not in the Store, because an older program accepted
// them and this one does not, and why. The file as it was is then beside the file, with the name of
// LeftOutCopy.
func (s *Store) LeftOut() []string { return s.leftOut }

// LeftOutCopy returns the name of the file with the objects of LeftOut.
func (s *Store) LeftOutCopy() string { return s.file + before }

// sizeOf returns how many bytes an object takes, about, where it is compared.
func sizeOf(o rest.Object) int {
	const fields = 64
	b, _ := json.Marshal(o) // strings and lists of them can be encoded
	return len(b) + len(o.GetName()) + fields
}

// Config returns the state for planning: the values are without the spaces around them.
func (s *Store) Config() rest.Config { return s.current.Load().Trimmed() }

func (s *Store) list(l *rest.Collection) []rest.Object { return s.current.Load().List(l) }

func (s *Store) get(l *rest.Collection, name string) (rest.Object, bool) {
	return s.current.Load().Get(l, name)
}

// has reports whether there is an object with a name.
func (s *Store) has(l *rest.Collection, name string) bool {
	_, exists := s.get(l, name)
	return exists
}

// put stores an object, which must not exist if it is to be created, and otherwise must. It keeps
// its place.
func (s *Store) put(l *rest.Collection, o rest.Object, devices *rest.Devices, create bool) error {
	return s.store(l, o, devices, create, false)
}

// store stores an object, as put does, or behind all others of its collection, also if it exists.
func (s *Store) store(l *rest.Collection, o rest.Object, devices *rest.Devices, create, last bool) error {
	if err := l.Check(o); err != nil {
		return err
	}
	o.SetName(rest.Trimmed(o).GetName())
	return s.change(func(c *rest.Config) (grown int, err error) {
		if err := c.CheckReferences(l, o, devices); err != nil {
			return 0, err
		}
		old, exists := c.Get(l, o.GetName())
		if exists && create {
			return 0, fmt.Errorf("%s/%s %w", l, o.GetName(), errConflict)
		}
		if !exists && !create {
			return 0, fmt.Errorf("%s/%s %w", l, o.GetName(), errMissing)
		}
		if !exists && c.Len(l) >= most(l) {
			return 0, fullError(fmt.Sprintf("%d objects of this type", most(l)))
		}
		grown = sizeOf(o)
		if exists {
			grown -= sizeOf(old)
		}
		if grown > 0 && s.size+grown > maxSize {
			return 0, fullError(fmt.Sprintf("objects of %d MiB", maxSize>>20))
		}
		if last {
			c.Delete(l, o.GetName())
		}
		c.Put(l, o)
		return grown, nil
	})
}

func (s *Store) delete(l *rest.Collection, name string) error {
	return s.change(func(c *rest.Config) (grown int, err error) {
		old, exists := c.Get(l, name)
		if !exists {
			return 0, fmt.Errorf("%s/%s %w", l, name, errMissing)
		}
		if err := c.CheckDelete(l, name); err != nil {
			return 0, err
		}
		c.Delete(l, name)
		return -sizeOf(old), nil
	})
}

// stop stops or starts a service. Starting one ends rest.Config.Awaiting.
func (s *Store) stop(service string, stopped bool) error {
	return s.change(func(c *rest.Config) (grown int, err error) {
		c.Stopped = slices.DeleteFunc(c.Stopped, func(n string) bool { return n == service })
		if stopped {
			c.Stopped = append(c.Stopped, service)
		} else {
			c.Awaiting = false
		}
		return 0, nil
	})
}

// EndAwaiting ends rest.Config.Awaiting.
func (s *Store) EndAwaiting() error {
	return s.change(func(c *rest.Config) (grown int, err error) {
		c.Awaiting = false
		return 0, nil
	})
}

// change changes a copy of the state, which becomes the state when it is in the file. F returns by
// how many bytes the objects have grown.
func (s *Store) change(f func(*rest.Config) (grown int, err error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.current.Load().Clone()
	grown, err := f(&c)
	if err != nil {
		return err
	}
	if s.file != "" {
		if err := save(s.file, &c); err != nil {
			return err
		}
	}
	s.size += grown
	s.current.Store(&c)
	return nil
}
