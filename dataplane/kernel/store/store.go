//go:build linux

// Package store has the interface by which package kernel lists, puts and deletes the objects of
// its parts. It has no code.
package store

import "subctl/dataplane"

// Store reads and writes the objects of some kinds in a kernel.
type Store interface {
	// Kinds returns the kinds of its objects, which no other store has.
	Kinds() []dataplane.Kind
	// List returns the objects that we own. It changes nothing.
	List() ([]dataplane.Object, error)
	// Put creates want, or puts it in place of old, which is nil if there is none. It must succeed
	// even if the kernel differs from old by now.
	Put(old, want dataplane.Object) error
	// Delete removes old. It is no error if old does not exist.
	Delete(old dataplane.Object) error
}
