package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"subctl/sdewan/rest"
)

// Bounds of what a CNF returns, far beyond what a CNF holds: who writes the answers of a CNF must
// not fill the memory of the controller, which others use, too.
const (
	maxItems = 10000 // of a collection
	maxName  = 253   // bytes
)

// Item is an object as a CNF has returned it. It keeps the JSON, which is decoded only to compare
// it.
type Item struct {
	Name string
	json json.RawMessage
}

// Size returns how much memory an Item takes, about.
func (i Item) Size() int { return len(i.Name) + len(i.json) + 64 }

// Digest is the same for items that are the same, whatever the order of their fields is.
func (i Item) Digest() [sha256.Size]byte {
	b, _ := json.Marshal(i.fields()) // what was decoded can be encoded
	return sha256.Sum256(b)
}

func (i Item) fields() (m map[string]any) {
	_ = json.Unmarshal(i.json, &m) // newItem has checked it
	return m
}

// newItem reads an object. OpenWrt returns [] for an object without fields.
func newItem(raw json.RawMessage) (Item, error) {
	if string(bytes.TrimSpace(raw)) == "[]" {
		return Item{}, nil
	}
	if rest.CountValues(raw) > rest.MaxValues {
		return Item{}, fmt.Errorf("it has more than %d values", rest.MaxValues)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return Item{}, err
	}
	var name string
	if json.Unmarshal(fields["name"], &name) != nil {
		name = ""
	}
	if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Item{}, errors.New("its name has control characters, or is too long")
	}
	return Item{name, raw}, nil
}

// decodeItem reads an object.
func decodeItem(code int, body []byte) (Item, error) {
	item, err := newItem(body)
	if err != nil {
		return Item{}, nonsense(code, "an object: %v", err)
	}
	return item, nil
}

// decodeList reads a collection. OpenWrt returns [] for a collection without objects, or for its
// list.
func decodeList(l *rest.Collection, code int, body []byte) (items []Item, err error) {
	if string(bytes.TrimSpace(body)) == "[]" {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	found := false
	err = decodeFields(d, func(key string) error {
		if key != l.ListKey {
			var other json.RawMessage
			return d.Decode(&other)
		}
		found = true
		items, err = decodeItems(d)
		return err
	})
	switch {
	case err != nil:
		return nil, nonsense(code, "the list of %s: %v", l, err)
	case !found:
		return nil, nonsense(code, "the list of %s has no key %s", l, l.ListKey)
	}
	for _, item := range items {
		if item.Name == "" {
			return nil, nonsense(code, "the list of %s has an object without a name", l)
		}
	}
	return items, nil
}

// decodeFields reads an object, or null. value reads the value of a field.
func decodeFields(d *json.Decoder, value func(key string) error) error {
	begin, err := d.Token()
	if err != nil {
		return err
	}
	if begin == json.Delim('{') {
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if err := value(name); err != nil {
				return err
			}
		}
		if _, err := d.Token(); err != nil { // the end
			return err
		}
	} else if begin != nil {
		return errors.New("it is no object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after it")
	}
	return nil
}

// decodeItems reads a list of objects, or null.
func decodeItems(d *json.Decoder) (items []Item, err error) {
	err = decodeElements(d, maxItems, func(raw json.RawMessage) error {
		item, err := newItem(raw)
		items = append(items, item)
		return err
	})
	return items, err
}

// decodeElements reads a list, or null.
func decodeElements(d *json.Decoder, most int, element func(json.RawMessage) error) error {
	begin, err := d.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('[') {
		return errors.New("it is no list")
	}
	for n := 0; d.More(); n++ {
		if n == most {
			return fmt.Errorf("it has more than %d elements", most)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if err := element(raw); err != nil {
			return fmt.Errorf("element %d: %w", n+1, err)
		}
	}
	_, err = d.Token() // the end
	return err
}

// unreadable are fields that OpenWrt does not return as they were written: it decodes certificates
// once too often, or leaves them out, and does not store if_id.
var unreadable = []string{"local_public_cert", "local_private_cert", "shared_ca", "if_id"}

// Matches reports whether the CNF holds o: whether every field of o has the same value. The CNF may
// leave out empty fields, and return them as null, "" or []; it may return numbers for strings, and
// fields of its own. The order of objects that have names, such as the connections of a remote,
// does not matter.
//
// Unreadable is true if o matches only without fields that a CNF on OpenWrt does not return as they
// were written.
func (i Item) Matches(o rest.Object) (matches, unreadable bool) {
	want, err := fields(o)
	if err != nil {
		return false, false
	}
	got := i.fields()
	if equal(want, got, nil) {
		return true, false
	}
	matches = equal(want, got, unreadableFields)
	return matches, matches
}

// Same reports whether two items are the same, for a comparison with what a CNF has returned
// before.
func (i Item) Same(other Item) bool {
	a := i.fields()
	b := other.fields()
	return equal(a, b, nil) && equal(b, a, nil)
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
	want = byName(want)
	list = byName(list)
	for i := range want {
		if !equal(want[i], list[i], skip) {
			return false
		}
	}
	return true
}

// byName returns a list of objects that all have names sorted by them, and any other list as it is.
// The members of a policy, which OpenWrt names, have no names in what we write: they are in the
// order of the policy on both sides.
func byName(list []any) []any {
	name := func(o any) string {
		m, _ := o.(map[string]any)
		s, _ := m["name"].(string)
		return s
	}
	if slices.ContainsFunc(list,
		func(o any) bool { m, _ := o.(map[string]any); return name(o) == "" || m["conn_type"] == nil }) {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(name(a), name(b)) })
	return list
}

// empty reports whether a field is unset: OpenWrt leaves it out, other CNFs return it as it was
// written.
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
