package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"unicode/utf8"

	"subctl/sdewan/rest"
)

const (
	// maxBody is the largest object, in bytes: a remote with many certificates has some 100 KiB.
	maxBody = 1 << 20
	// maxDiscarded is the number of bytes of a body that are read although it is too large: many
	// clients see no answer before they have sent all of it.
	maxDiscarded = 16 << 20
)

// objects answers a request for a collection, or for the object with a name.
func (s *Server) objects(w *answer, r *http.Request, l *rest.Collection, name string) {
	switch {
	case l == rest.Services && r.Method == http.MethodPut:
		w.message(http.StatusMethodNotAllowed, "Method Not Allowed") // as on OpenWrt: delete and create it
	case r.Method == http.MethodGet && name == "":
		s.list(w, l)
	case r.Method == http.MethodGet:
		o, ok := s.Store.get(l, name)
		if !ok {
			w.message(http.StatusNotFound, fmt.Sprintf("Cannot find %s[%s]", l, name))
			return
		}
		w.json(http.StatusOK, o)
	case r.Method == http.MethodPost && name == "", r.Method == http.MethodPut && name != "":
		s.write(w, r, l, name)
	case r.Method == http.MethodDelete && name != "":
		err := s.Store.delete(l, name)
		if errors.Is(err, errMissing) && l == rest.Services {
			err = nil // as on OpenWrt
		}
		if err != nil {
			s.refuse(w, err)
			return
		}
		s.changed(r, l.String()+"/"+name)
		w.message(http.StatusOK, "success")
	default:
		w.message(http.StatusBadRequest, "Bad request URI")
	}
}

// list answers with all objects, under the key that OpenWrt uses, and that which upstream's client
// reads.
func (s *Server) list(w *answer, l *rest.Collection) {
	objects := s.Store.list(l)
	lists := map[string]any{l.ListKey: objects}
	if l.ClientKey != "" {
		lists[l.ClientKey] = objects
	}
	w.json(http.StatusOK, lists)
}

// write creates the object in the body, or, with a name, replaces the one with this name.
//
// PUT of an unknown name is 404, whatever the body is. (The present release of OpenWrt's packages
// creates the object, the first one did not.) A replaced object keeps its place in the order,
// unlike on OpenWrt, where it moves to the end and another rule may then match first. With
// rest.PlaceHeader, it moves to the end here, too.
func (s *Server) write(w *answer, r *http.Request, l *rest.Collection, name string) {
	create := name == ""
	if !create && !s.Store.has(l, name) {
		w.message(http.StatusNotFound, fmt.Sprintf("Cannot find %s[%s]", l, name))
		return
	}
	o, ok := s.read(w, r, l)
	if !ok {
		return
	}
	if !create {
		o.SetName(name)
	}
	var devices *rest.Devices
	if s.Devices != nil {
		devices = s.Devices()
	}
	last := !create && r.Header.Get(rest.PlaceHeader) == rest.PlaceLast
	if err := s.Store.store(l, o, devices, create, last); err != nil {
		s.refuse(w, err)
		return
	}
	if last {
		w.Header().Set(rest.PlaceHeader, rest.PlaceLast)
	}
	s.changed(r, l.String()+"/"+o.GetName())
	code := http.StatusOK
	if create && l != rest.Services {
		code = http.StatusCreated
	}
	w.json(code, o)
}

// read reads the object in the body of a request; if that fails, it answers.
func (s *Server) read(w *answer, r *http.Request, l *rest.Collection) (rest.Object, bool) {
	body, ok := body(w, r)
	if !ok {
		return nil, false
	}
	o := l.New()
	if err := decode(body, o); err != nil {
		w.message(http.StatusBadRequest, "Body parse error: "+err.Error())
		return nil, false
	}
	return o, true
}

// body returns the body of a request; if that fails, it answers.
func body(w *answer, r *http.Request) ([]byte, bool) {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case len(b) > maxBody:
		_, _ = io.CopyN(io.Discard, r.Body, maxDiscarded)
		w.Header().Set("Connection", "close")
		w.message(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", maxBody))
		return nil, false
	case err != nil:
		w.message(http.StatusBadRequest, "Body parse error: the body is incomplete")
		return nil, false
	}
	return b, true
}

// decode decodes a JSON object. Unknown keys do not count, as on OpenWrt. Errors have nothing of
// the body except the names of fields.
func decode(body []byte, into any) error {
	if !utf8.Valid(body) {
		return errors.New("it is not UTF-8")
	}
	if b := bytes.TrimSpace(body); len(b) == 0 || b[0] != '{' {
		return errors.New("it is not a JSON object")
	}
	err := json.Unmarshal(body, into)
	var mistyped *json.UnmarshalTypeError
	var invalid *json.SyntaxError
	switch {
	case errors.As(err, &mistyped):
		hint := ""
		if mistyped.Value == "number" {
			hint = `, such as "1"`
		}
		return fmt.Errorf("%s: a %s is expected%s, not a %s", mistyped.Field, kindName(mistyped), hint, mistyped.Value)
	case errors.As(err, &invalid):
		return fmt.Errorf("it is not JSON from byte %d on", invalid.Offset)
	case err != nil:
		return errors.New("it is not valid JSON")
	}
	return checkKeys(body, reflect.TypeOf(into))
}

func kindName(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "string":
		return "string"
	case "slice":
		return "list"
	case "bool":
		return "true or false"
	}
	return "object"
}

// refuse answers with an error of the Store.
func (s *Server) refuse(w *answer, err error) {
	var refusal *rest.Refusal
	var full fullError
	switch {
	case errors.As(err, &refusal):
		w.message(refusal.Code, refusal.Error())
	case errors.As(err, &full):
		w.message(http.StatusInsufficientStorage, full.Error())
	case errors.Is(err, errMissing):
		w.message(http.StatusNotFound, err.Error())
	case errors.Is(err, errConflict):
		w.message(http.StatusConflict, "Conflict: "+err.Error())
	default:
		s.Log.Error("storing what the REST API has received", "err", err)
		w.message(http.StatusInternalServerError, "storing the object failed: see the log of the CNF")
	}
}

// changed logs a change, and reports it.
func (s *Server) changed(r *http.Request, what string) {
	s.Log.Info("rest", "op", r.Method+" "+what, "from", r.RemoteAddr)
	s.Changed()
}
