package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// checkKeys returns an error if an object has a key twice, or one that differs from the key of a
// field in upper and lower case only: encoding/json takes both for the field, and CNFs on OpenWrt
// the last and none. Unknown keys do not count. The text is JSON that can be decoded into a t.
func checkKeys(text []byte, t reflect.Type) error {
	return keysOf(json.NewDecoder(bytes.NewReader(text)), t)
}

var raw = reflect.TypeFor[json.RawMessage]()

// keysOf checks the next value. t is nil for a value that no field has.
func keysOf(d *json.Decoder, t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	begin, err := d.Token()
	if err != nil {
		return err
	}
	switch begin {
	case json.Delim('{'):
		seen := map[string]bool{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if seen[name] {
				return fmt.Errorf("it has the key %.60q twice", name)
			}
			seen[name] = true
			field, err := fieldOf(t, name)
			if err != nil {
				return err
			}
			if err := keysOf(d, field); err != nil {
				return err
			}
		}
		_, err = d.Token()
	case json.Delim('['):
		var element reflect.Type
		if t != nil && t != raw && t.Kind() == reflect.Slice {
			element = t.Elem()
		}
		for d.More() {
			if err := keysOf(d, element); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}

// fieldOf returns the type of the value of a key, or nil.
func fieldOf(t reflect.Type, key string) (reflect.Type, error) {
	switch {
	case t == nil:
		return nil, nil
	case t.Kind() == reflect.Map:
		return t.Elem(), nil
	case t.Kind() != reflect.Struct:
		return nil, nil
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		switch {
		case name == key:
			return t.Field(i).Type, nil
		case strings.EqualFold(name, key):
			return nil, fmt.Errorf("it has the key %.60q: write %s", key, name)
		}
	}
	return nil, nil
}
