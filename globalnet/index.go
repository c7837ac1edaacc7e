package globalnet

import (
	"iter"
	"slices"
)

// index finds values by a key, which few of them share. The zero index is empty.
type index[K, V comparable] struct {
	one  map[K]V   // the first value
	more map[K][]V // the others, if there are some
}

func (x *index[K, V]) add(k K, v V) {
	if x.one == nil {
		x.one = map[K]V{}
		x.more = map[K][]V{}
	}
	if _, taken := x.one[k]; taken {
		x.more[k] = append(x.more[k], v)
		return
	}
	x.one[k] = v
}

func (x *index[K, V]) has(k K) bool {
	_, has := x.one[k]
	return has
}

// remove removes one value that equals v.
func (x *index[K, V]) remove(k K, v V) {
	first, has := x.one[k]
	others := x.more[k]
	switch {
	case !has:
		return
	case first == v && len(others) == 0:
		delete(x.one, k)
		return
	case first == v:
		x.one[k] = others[0]
		others = others[1:]
	default:
		i := slices.Index(others, v)
		if i < 0 {
			return
		}
		others = slices.Delete(others, i, i+1)
	}
	if len(others) == 0 {
		delete(x.more, k)
		return
	}
	x.more[k] = others
}

// all returns the values of a key, in no order.
func (x *index[K, V]) all(k K) iter.Seq[V] {
	return func(yield func(V) bool) {
		first, has := x.one[k]
		if !has || !yield(first) {
			return
		}
		for _, v := range x.more[k] {
			if !yield(v) {
				return
			}
		}
	}
}

// patch returns a sorted list without the items that are to be dropped, and with others. It does
// not change the list.
func patch[T interface{ Compare(T) int }](list []T, drop func(T) bool, add []T) []T {
	slices.SortFunc(add, T.Compare)
	out := make([]T, 0, len(list)+len(add))
	for _, item := range list {
		if drop(item) {
			continue
		}
		for len(add) > 0 && add[0].Compare(item) < 0 {
			out = append(out, add[0])
			add = add[1:]
		}
		out = append(out, item)
	}
	if out = append(out, add...); len(out) == 0 {
		return nil
	}
	return out
}
