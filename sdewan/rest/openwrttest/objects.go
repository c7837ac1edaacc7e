package openwrttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"subctl/sdewan/rest"
)

// objects answers a request for a collection or an object: parts are module, v1, collection and
// name.
func (b *Box) objects(w http.ResponseWriter, r *http.Request, parts []string) {
	if len(parts) < 3 || len(parts) > 4 || parts[1] != "v1" {
		refuse(w, http.StatusBadRequest, "Bad request URI")
		return
	}
	l := rest.Lookup(parts[0], parts[2])
	if l == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	name := ""
	if len(parts) == 4 {
		name, _ = url.PathUnescape(parts[3])
	}
	if r.Method != http.MethodGet {
		b.writes = append(b.writes, strings.TrimSuffix(r.Method+" "+l.String()+"/"+name, "/"))
	} else {
		b.reads++
	}
	switch {
	case r.Method == http.MethodGet && name == "":
		reply(w, http.StatusOK, map[string]any{l.ListKey: append([]map[string]any{}, b.store[l.String()]...)})
	case r.Method == http.MethodGet:
		b.get(w, l, name, http.StatusOK)
	case r.Method == http.MethodPost && name == "":
		b.post(w, r, l)
	case r.Method == http.MethodPut && name != "":
		b.put(w, r, l, name)
	case r.Method == http.MethodDelete && name != "":
		b.remove(w, l, name)
	default:
		refuse(w, http.StatusBadRequest, "Bad request URI")
	}
}

func (b *Box) get(w http.ResponseWriter, l *rest.Collection, name string, code int) {
	list := b.store[l.String()]
	if i := find(list, name); i >= 0 {
		reply(w, code, list[i])
		return
	}
	refuse(w, http.StatusNotFound, "Cannot find %s[%s]", l.Name, name)
}

func (b *Box) post(w http.ResponseWriter, r *http.Request, l *rest.Collection) {
	o, ok := body(w, r)
	if !ok {
		return
	}
	name, _ := o["name"].(string)
	if name = strings.TrimSpace(name); name == "" {
		refuse(w, http.StatusBadRequest, "Field[name] checked failed: required")
		return
	}
	if slices.Contains([]string{"mwan3", "ipsec"}, l.Module) { // named sections, which share their names
		for _, other := range rest.Collections {
			if other.Module == l.Module && find(b.store[other.String()], name) >= 0 {
				refuse(w, http.StatusConflict, "Conflict")
				return
			}
		}
	}
	if code, why := b.check(l, o); code != 0 {
		refuse(w, code, "%s", why)
		return
	}
	if l == rest.Policies && twice(o) {
		refuse(w, http.StatusBadRequest, "Same interface is used in different members")
		return
	}
	b.store[l.String()] = append(b.store[l.String()], stored(l, o))
	delete(b.dropped[l.String()], name)
	b.get(w, l, name, http.StatusCreated)
}

// twice reports whether two members of a policy have the same interface.
func twice(o map[string]any) bool {
	seen := map[any]bool{}
	for _, m := range objectsIn(o["members"]) {
		if seen[m["interface"]] {
			return true
		}
		seen[m["interface"]] = true
	}
	return false
}

// put deletes and creates: the object moves to the end, and is gone if it is refused only then.
func (b *Box) put(w http.ResponseWriter, r *http.Request, l *rest.Collection, name string) {
	o, ok := body(w, r)
	if !ok {
		return
	}
	o["name"] = name
	if code, why := b.check(l, o); code != 0 {
		refuse(w, code, "%s", why)
		return
	}
	list := slices.DeleteFunc(slices.Clone(b.store[l.String()]),
		func(o map[string]any) bool { return o["name"] == name })
	b.store[l.String()] = list
	if l == rest.Policies && twice(o) {
		refuse(w, http.StatusBadRequest, "Same interface is used in different members")
		return
	}
	b.store[l.String()] = append(list, stored(l, o))
	delete(b.dropped[l.String()], name)
	b.get(w, l, name, http.StatusOK)
}

func (b *Box) remove(w http.ResponseWriter, l *rest.Collection, name string) {
	list := b.store[l.String()]
	if find(list, name) < 0 {
		refuse(w, http.StatusNotFound, "%s %s is not defined", l.Name, name)
		return
	}
	if b.used(l, name) {
		refuse(w, http.StatusBadRequest, "%s %s is used", strings.TrimSuffix(l.Name, "s"), name)
		return
	}
	b.store[l.String()] = slices.DeleteFunc(slices.Clone(list),
		func(o map[string]any) bool { return o["name"] == name })
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprint(w, `{"message":"success"}`)
}

func body(w http.ResponseWriter, r *http.Request) (map[string]any, bool) {
	b, _ := io.ReadAll(r.Body)
	o := map[string]any{}
	if err := json.Unmarshal(b, &o); err != nil {
		refuse(w, http.StatusBadRequest, "Body parse error: %v", err)
		return nil, false
	}
	return o, true
}

// maxZoneName is the longest name of a zone, in characters: names of chains of iptables have it as
// a part (firewall3).
const maxZoneName = 11

// check returns the code and the reason with which an object is refused; 0 if it is not.
func (b *Box) check(l *rest.Collection, o map[string]any) (int, string) {
	has := func(l *rest.Collection, name any) bool {
		s, _ := name.(string)
		return find(b.store[l.String()], s) >= 0
	}
	device := func(name any) bool {
		s, _ := name.(string)
		return b.Interfaces == nil || slices.Contains(b.Interfaces, s)
	}
	switch l {
	case rest.Policies:
		for _, m := range objectsIn(o["members"]) {
			if !device(m["interface"]) {
				return http.StatusBadRequest, fmt.Sprintf(
					"Field[members] checked failed: Not all items valid [Field[interface] checked failed: Interface[%v] is not definied]",
					m["interface"])
			}
		}
	case rest.Rules:
		if !has(rest.Policies, o["policy"]) {
			return http.StatusBadRequest, fmt.Sprintf("Field[policy] checked failed: policy %v is not defined",
				o["policy"])
		}
	case rest.Zones:
		if name, _ := o["name"].(string); len(name) > maxZoneName {
			return http.StatusBadRequest, "Field[name] checked failed: Length is too long"
		}
		list, _ := o["network"].([]any)
		for _, n := range list {
			if !device(n) {
				return http.StatusBadRequest, fmt.Sprintf(
					"Field[network] checked failed: Interface[%v] is not definied", n)
			}
		}
	case rest.Forwardings, rest.FirewallRules, rest.Redirects:
		for _, f := range []string{"src", "dest"} {
			if s, _ := o[f].(string); s != "" && s != "*" && !has(rest.Zones, s) {
				return http.StatusBadRequest, fmt.Sprintf("Field[%s] checked failed: Zone[%s] is not definied", f, s)
			}
		}
	case rest.Remotes:
		list, _ := o["crypto_proposal"].([]any)
		for _, p := range list {
			if !has(rest.Proposals, p) {
				return http.StatusPreconditionRequired, fmt.Sprintf(
					"Field[crypto_proposal] checked failed: proposal %v is not defined", p)
			}
		}
	}
	return 0, ""
}

// used reports whether another object refers to one, where OpenWrt checks that.
func (b *Box) used(l *rest.Collection, name string) bool {
	refers := func(l *rest.Collection, fields ...string) bool {
		return slices.ContainsFunc(b.store[l.String()], func(o map[string]any) bool {
			return slices.ContainsFunc(fields, func(f string) bool {
				list, _ := o[f].([]any)
				return o[f] == name || slices.Contains(list, any(name))
			})
		})
	}
	switch l {
	case rest.Policies:
		return refers(rest.Rules, "policy")
	case rest.Zones:
		return refers(rest.Forwardings, "src", "dest") || refers(rest.FirewallRules, "src", "dest") ||
			refers(rest.Redirects, "src", "dest")
	case rest.Proposals:
		return refers(rest.Remotes, "crypto_proposal")
	}
	return false
}

// stored returns an object as OpenWrt stores and returns it: without empty fields, with fields that
// it adds, with connections sorted by type, without if_id, and with certificates that are decoded
// once too often.
func stored(l *rest.Collection, o map[string]any) map[string]any {
	out := trimmed(o)
	name, _ := out["name"].(string)
	switch l {
	case rest.Policies:
		for _, m := range objectsIn(out["members"]) {
			m["name"] = fmt.Sprintf("%s_%v", name, m["interface"])
		}
	case rest.Remotes:
		out["enabled"] = "1"
		delete(out, "local_private_cert")
		for _, f := range []string{"local_public_cert", "shared_ca"} {
			if out[f] != nil {
				out[f] = "\ufffd\u0001"
			}
		}
		list := objectsIn(out["connections"])
		slices.SortStableFunc(list, func(a, b map[string]any) int {
			// transport before tunnel: another order than that of most tests
			return -strings.Compare(fmt.Sprint(a["conn_type"]), fmt.Sprint(b["conn_type"]))
		})
		sorted := make([]any, len(list))
		for i, c := range list {
			delete(c, "if_id")
			sorted[i] = c
		}
		if len(sorted) > 0 {
			out["connections"] = sorted
		}
	}
	return out
}

func trimmed(o map[string]any) map[string]any {
	out := clone(o)
	for k, v := range o {
		switch v := v.(type) {
		case nil:
			delete(out, k)
		case string:
			if out[k] = strings.TrimSpace(v); out[k] == "" {
				delete(out, k)
			}
		case []any:
			list := make([]any, len(v))
			for i, e := range v {
				if list[i] = e; objectIn(e) != nil {
					list[i] = trimmed(objectIn(e))
				}
			}
			if out[k] = list; len(list) == 0 {
				delete(out, k)
			}
		}
	}
	return out
}

func objectIn(v any) map[string]any { m, _ := v.(map[string]any); return m }

func objectsIn(v any) (out []map[string]any) {
	list, _ := v.([]any)
	for _, e := range list {
		if m := objectIn(e); m != nil {
			out = append(out, m)
		}
	}
	return out
}
