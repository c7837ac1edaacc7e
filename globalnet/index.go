package globalnet

import (
	"iter"
	"slices"
	"strings"
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

// having returns the items of a sorted list that begin with a text.
func having(list []string, beginning string) []string {
	first, _ := slices.BinarySearch(list, beginning)
	end := first
	for end < len(list) && strings.HasPrefix(list[end], beginning) {
		end++
	}
	return list[first:end]
}

// patch returns a sorted list without some items, and with others. It does not change the list.
func patch(list, without, with []string) []string {
	if len(without) == 0 && len(with) == 0 {
		return list
	}
	slices.Sort(without)
	slices.Sort(with)
	with = slices.Compact(with)
	out := make([]string, 0, len(list)+len(with))
	for len(without) > 0 || len(with) > 0 {
		var next string
		if len(with) == 0 || len(without) > 0 && without[0] <= with[0] {
			next = without[0]
			without = without[1:]
		} else {
			next = with[0]
		}
		i, is := slices.BinarySearch(list, next)
		out = append(out, list[:i]...)
		list = list[i:]
		if is {
			list = list[1:]
		}
		if len(with) > 0 && with[0] == next {
			out = append(out, next)
			with = with[1:]
		}
	}
	if out = append(out, list...); len(out) == 0 {
		return nil
	}
	return out
}
