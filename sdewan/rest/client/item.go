package client

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"subctl/sdewan/rest"
)

// Item is an object as a CNF has returned it.
type Item struct {
	Name   string
	fields map[string]any
}

// decodeItem reads an object. OpenWrt returns [] for an object without fields.
func decodeItem(code int, body []byte) (Item, error) {
	var fields map[string]any
	if string(bytes.TrimSpace(body)) != "[]" {
		if err := json.Unmarshal(body, &fields); err != nil {
			return Item{}, nonsense(code, "an object: %v", err)
		}
	}
	name, _ := fields["name"].(string)
	return Item{name, fields}, nil
}

// decodeList reads a collection. OpenWrt returns [] for a collection without objects, or for its list.
func decodeList(l *rest.Collection, code int, body []byte) ([]Item, error) {
	if string(bytes.TrimSpace(body)) == "[]" {
		return nil, nil
	}
	var lists map[string]json.RawMessage
	if err := json.Unmarshal(body, &lists); err != nil {
		return nil, nonsense(code, "the list of %s: %v", l, err)
	}
	list, ok := lists[l.ListKey]
	if !ok {
		return nil, nonsense(code, "the list of %s has no key %s", l, l.ListKey)
	}
	var objects []map[string]any
	if err := json.Unmarshal(list, &objects); err != nil {
		return nil, nonsense(code, "the list of %s: %v", l, err)
	}
	items := make([]Item, 0, len(objects))
	for _, o := range objects {
		name, _ := o["name"].(string)
		if name == "" {
			return nil, nonsense(code, "the list of %s has an object without a name", l)
		}
		items = append(items, Item{name, o})
	}
	return items, nil
}

// unreadable are fields that OpenWrt does not return as they were written: it decodes certificates once too often, or leaves them out, and
// does not store if_id.
var unreadable = []string{"local_public_cert", "local_private_cert", "shared_ca", "if_id"}

// Matches reports whether the CNF holds o: whether every field of o has the same value. The CNF may leave out empty
// fields, and return them as null, "" or []; it may return numbers for strings, and fields of its own. The order of
// objects that have names, such as the connections of a remote, does not matter.
//
// Unreadable is true if o matches only without fields that a CNF on OpenWrt does not return as they were written.
func (i Item) Matches(o rest.Object) (matches, unreadable bool) {
	want, err := fields(o)
	if err != nil {
		return false, false
	}
	if equal(want, i.fields, nil) {
		return true, false
	}
	matches = equal(want, i.fields, unreadableFields)
	return matches, matches
}

// Same reports whether two items are the same, for a comparison with what a CNF has returned before.
func (i Item) Same(other Item) bool {
	return equal(i.fields, other.fields, nil) && equal(other.fields, i.fields, nil)
}

func unreadableFields(key string) bool { return slices.Contains(unreadable, key) }

// fields returns an object as JSON has it.
func fields(o rest.Object) (map[string]any, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	return m, json.Unmarshal(b, &m)
}

// equal reports whether got has what want has, except keys that skip reports.
func equal(want, got any, skip func(string) bool) bool {
	if empty(want) {
		return empty(got)
	}
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for k, w := range want {
			if (skip == nil || !skip(k)) && !equal(w, got[k], skip) {
				return false
			}
		}
		return true
	case []any:
		return equalLists(want, got, skip)
	}
	if list, ok := got.([]any); ok && len(list) == 1 {
		got = list[0] // UCI does not distinguish a value from a list of one
	}
	w, wok := text(want)
	g, gok := text(got)
	return wok && gok && w == g
}

func equalLists(want []any, got any, skip func(string) bool) bool {
	list, ok := got.([]any)
	if s, isText := got.(string); isText {
		for word := range strings.FieldsSeq(s) { // as UCI prints lists
			list = append(list, word)
		}
		ok = true
	}
	if !ok || len(list) != len(want) {
		return false
	}
	want, list = byName(want), byName(list)
	for i := range want {
		if !equal(want[i], list[i], skip) {
			return false
		}
	}
	return true
}

// byName returns a list of objects that all have names sorted by them, and any other list as it is. The members
// of a policy, which OpenWrt names, have no names in what we write: they are in the order of the policy on both sides.
func byName(list []any) []any {
	name := func(o any) string {
		m, _ := o.(map[string]any)
		s, _ := m["name"].(string)
		return s
	}
	if slices.ContainsFunc(list, func(o any) bool { m, _ := o.(map[string]any); return name(o) == "" || m["conn_type"] == nil }) {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(name(a), name(b)) })
	return list
}

// empty reports whether a field is unset: OpenWrt leaves it out, other CNFs return it as it was written.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return strings.TrimSpace(v) == ""
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// secretsOf returns what no message may have of an object that was sent.
func secretsOf(o rest.Object) []string {
	r, ok := o.(*rest.Remote)
	if !ok {
		return nil
	}
	var out []string
	for _, s := range []string{r.PreSharedKey, r.LocalKey} {
		if s = strings.TrimSpace(s); s != "" {
			quoted, _ := json.Marshal(s) // a string can be encoded
			out = append(out, s, strings.Trim(string(quoted), `"`))
		}
	}
	return out
}
