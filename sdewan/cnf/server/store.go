package server

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"subctl/sdewan/rest"
)

// maxObjects is how many objects a collection holds at most, and maxZones how many zones there are: each has a rule for each other one.
const (
	maxObjects = 10000
	maxZones   = 128
)

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

// fullError reports that a collection holds as many objects as it may.
type fullError int

func (e fullError) Error() string {
	return fmt.Sprintf("the CNF holds %d objects of this type and no more: delete others", int(e))
}

// Store is what a CNF has been told. Readers see a state as a whole, and never wait for writers; a change that is refused changes nothing.
type Store struct {
	file string

	mu      sync.Mutex // of writers
	current atomic.Pointer[rest.Config]
}

// OpenStore returns the Store whose state is in a file, or in memory alone if the name is "". Without a file, the state has no objects, and
// awaits its configuration. A file that is damaged is an error, and stays as it is.
func OpenStore(file string) (*Store, error) {
	s := &Store{file: file}
	c := rest.Config{Awaiting: true}
	if file != "" {
		var err error
		if c, err = load(file); err != nil {
			return nil, err
		}
	}
	s.current.Store(&c)
	return s, nil
}

// Config returns the state for planning: the values are without the spaces around them.
func (s *Store) Config() rest.Config { return s.current.Load().Trimmed() }

func (s *Store) list(l *rest.Collection) []rest.Object { return s.current.Load().List(l) }

func (s *Store) get(l *rest.Collection, name string) (rest.Object, bool) {
	return s.current.Load().Get(l, name)
}

// put stores an object, which must not exist if it is to be created.
func (s *Store) put(l *rest.Collection, o rest.Object, devices *rest.Devices, create bool) error {
	if err := l.Check(o); err != nil {
		return err
	}
	o.SetName(rest.Trimmed(o).GetName())
	return s.change(func(c *rest.Config) error {
		_, exists := c.Get(l, o.GetName())
		if exists && create {
			return fmt.Errorf("%s/%s %w", l, o.GetName(), errConflict)
		}
		if !exists && c.Len(l) >= most(l) {
			return fullError(most(l))
		}
		if err := c.CheckReferences(l, o, devices); err != nil {
			return err
		}
		c.Put(l, o)
		return nil
	})
}

func (s *Store) delete(l *rest.Collection, name string) error {
	return s.change(func(c *rest.Config) error {
		if err := c.CheckDelete(l, name); err != nil {
			return err
		}
		if !c.Delete(l, name) {
			return fmt.Errorf("%s/%s %w", l, name, errMissing)
		}
		return nil
	})
}

// stop stops or starts a service. Starting one ends rest.Config.Awaiting.
func (s *Store) stop(service string, stopped bool) error {
	return s.change(func(c *rest.Config) error {
		c.Stopped = slices.DeleteFunc(c.Stopped, func(n string) bool { return n == service })
		if stopped {
			c.Stopped = append(c.Stopped, service)
		} else {
			c.Awaiting = false
		}
		return nil
	})
}

// EndAwaiting ends rest.Config.Awaiting.
func (s *Store) EndAwaiting() error {
	return s.change(func(c *rest.Config) error {
		c.Awaiting = false
		return nil
	})
}

// change changes a copy of the state, which becomes the state when it is in the file.
func (s *Store) change(f func(*rest.Config) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.current.Load().Clone()
	if err := f(&c); err != nil {
		return err
	}
	if s.file != "" {
		if err := save(s.file, &c); err != nil {
			return err
		}
	}
	s.current.Store(&c)
	return nil
}
