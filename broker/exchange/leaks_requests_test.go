package exchange_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"

	"subctl/broker"
)

// What the members of the leak matrix try: see leaks_test.go.

// resource is a resource or a subresource, as the API server describes it.
type resource struct {
	group, version, kind string
	name, sub            string // sub is empty for a resource
	namespaced           bool
}

// String returns the resource as kubectl names it: "serviceaccounts/token",
// "clusters.submariner.io".
func (r resource) String() string {
	name := r.name
	if r.group != "" {
		name += "." + r.group
	}
	if r.sub != "" {
		name += "/" + r.sub
	}
	return name
}

// path returns the path of an object; of all objects if name is empty, and of all namespaces if ns
// is.
func (r resource) path(ns, name string) string {
	p := "/apis/" + r.group + "/" + r.version
	if r.group == "" {
		p = "/api/" + r.version
	}
	if ns != "" {
		p += "/namespaces/" + ns
	}
	p += "/" + r.name
	if name != "" {
		p += "/" + name
	}
	if r.sub != "" {
		p += "/" + r.sub
	}
	return p
}

// discover reads which resources there are, and which objects of them.
func (w *leakWorld) discover() {
	d, err := discovery.NewDiscoveryClientForConfig(w.Server.Config())
	require.NoError(w.t, err)
	_, lists, err := d.ServerGroupsAndResources()
	require.NoError(w.t, err)
	w.names = map[string][]string{}
	w.objects = map[string][]byte{}
	w.like = map[string][]byte{}
	admin := newHTTPClient(w.t, w.Server.Config())
	for _, list := range lists {
		gv := strings.Split(list.GroupVersion, "/")
		group := strings.Join(gv[:len(gv)-1], "")
		version := gv[len(gv)-1]
		for _, found := range list.APIResources {
			name, sub, _ := strings.Cut(found.Name, "/")
			r := resource{
				group:      group,
				version:    version,
				kind:       found.Kind,
				name:       name,
				sub:        sub,
				namespaced: found.Namespaced,
			}
			w.api = append(w.api, r)
			if !slices.Contains(found.Verbs, "list") {
				continue
			}
			for _, ns := range w.namespaces(r)[1:] {
				a, err := admin.do(w.t, request{verb: "list", path: r.path(ns, "")})
				require.NoError(w.t, err)
				all := &unstructured.UnstructuredList{}
				require.NoError(w.t, json.Unmarshal(a.body, all), "%s", a.body)
				for _, o := range all.Items {
					if !r.namespaced && !strings.HasPrefix(o.GetName(), w.NS) && len(w.names[r.path(ns, "")]) > 2 {
						continue // there are many, and none is of the broker
					}
					o.SetAPIVersion(list.GroupVersion)
					o.SetKind(r.kind)
					w.names[r.path(ns, "")] = append(w.names[r.path(ns, "")], o.GetName())
					b, err := o.MarshalJSON()
					require.NoError(w.t, err)
					if kind := group + "/" + r.kind; len(b) > len(w.like[kind]) {
						w.like[kind] = b
					}
					w.objects[r.path(ns, o.GetName())] = b
				}
			}
		}
	}
}

// namespaces returns where to look for objects of a resource: first everywhere, for which the name
// is empty, and then in each namespace of the broker.
func (w *leakWorld) namespaces(r resource) []string {
	if !r.namespaced {
		return []string{"", ""}
	}
	return append([]string{""}, w.namespacesOf([]string{"default", "a", "b", "c"})...)
}

// requests returns everything that an insider tries with the API.
func (w *leakWorld) requests(m *insider) (out []request) {
	for _, r := range w.api {
		for i, ns := range w.namespaces(r) {
			add := func(verb, name string, body []byte) {
				out = append(out,
					request{verb: verb, resource: r.String(), ns: ns, name: name, path: r.path(ns, name), body: body})
			}
			if i > 0 || r.namespaced {
				if r.sub == "" {
					for _, verb := range []string{"list", "watch", "deletecollection"} {
						add(verb, "", nil)
					}
					add("create", "", w.newObject(m, r, ns))
				}
			}
			if i == 0 {
				continue
			}
			parent := r
			parent.sub = ""
			names := w.names[parent.path(ns, "")]
			if len(names) == 0 {
				names = []string{"none"}
			}
			for _, name := range names {
				object := w.objects[parent.path(ns, name)]
				if object == nil {
					object = w.newObject(m, r, ns)
				}
				add("get", name, nil)
				add("update", name, object)
				add("patch", name, []byte(`{"metadata":{"annotations":{"leak":"x"}}}`))
				if add("delete", name, nil); r.sub != "" {
					add("create", name, []byte(`{}`))
				}
			}
		}
	}
	return append(append(out, w.impersonations(m)...), w.otherPaths()...)
}

// newObject returns a new object, with the content of one that exists. A RoleBinding gives the
// insider the rights of a member, and a Secret gets the token of another one.
func (w *leakWorld) newObject(m *insider, r resource, ns string) []byte {
	version := r.version
	if r.group != "" {
		version = r.group + "/" + version
	}
	o := map[string]any{"apiVersion": version, "kind": r.kind}
	if like := w.like[r.group+"/"+r.kind]; like != nil {
		require.NoError(w.t, json.Unmarshal(like, &o))
	}
	o["metadata"] = map[string]any{"name": "leak", "namespace": ns}
	switch r.kind {
	case "Secret":
		o["metadata"] = map[string]any{
			"name": broker.MemberName(m.id) + "-token-invited", "namespace": ns,
			"annotations": map[string]any{
				"kubernetes.io/service-account.name": broker.MemberName(append(w.strangers(m), w.ids()...)[0]),
			},
		}
		o["type"] = "kubernetes.io/service-account-token"
		o["data"] = nil
	case "RoleBinding":
		o["metadata"].(map[string]any)["name"] = broker.MemberName(m.id) + "-" + broker.MemberRoleName
		o["roleRef"] = map[string]any{"apiGroup": r.group, "kind": "Role", "name": broker.MemberRoleName}
		o["subjects"] = []any{
			map[string]any{"kind": "ServiceAccount", "name": broker.MemberName(m.id), "namespace": w.NS},
		}
	}
	b, err := json.Marshal(o)
	require.NoError(w.t, err)
	return b
}

// impersonations are requests in the name of others.
func (w *leakWorld) impersonations(m *insider) (out []request) {
	for _, other := range w.strangers(m) {
		for _, header := range []http.Header{
			{"Impersonate-User": {"system:serviceaccount:" + w.NS + ":" + broker.MemberName(other)}},
			{"Impersonate-User": {"system:serviceaccount:" + w.NS + ":" + broker.JoinerName}},
			{"Impersonate-User": {"kubernetes-admin"}, "Impersonate-Group": {"system:masters"}},
			{
				"Impersonate-User":  {"system:serviceaccount:" + w.NS + ":" + broker.MemberName(m.id)},
				"Impersonate-Group": {"system:masters"},
			},
			{"Impersonate-User": {"x"}, "Impersonate-Uid": {"x"}},
		} {
			for _, set := range setsOfMembers[other] {
				ns := broker.NamespaceIn(w.NS, set)
				out = append(
					out,
					request{
						verb:     "list",
						resource: "clusters.submariner.io",
						ns:       ns,
						path:     "/apis/submariner.io/v1/namespaces/" + ns + "/clusters",
						header:   header,
					},
				)
			}
		}
	}
	return out
}

// otherPaths are paths that are no resources.
func (w *leakWorld) otherPaths() (out []request) {
	for _, path := range []string{
		"/metrics",
		"/metrics/slis",
		"/logs",
		"/debug/pprof/",
		"/debug/api_priority_and_fairness/dump_requests",
		"/configz",
		"/flagz",
		"/statusz",
	} {
		out = append(out, request{verb: "get", resource: path, path: path})
	}
	return out
}

// questions are what an insider asks about its rights, and what everybody may read.
func (w *leakWorld) questions(m *insider) (out []request) {
	const reviews = "/apis/authorization.k8s.io/v1/"
	for _, ns := range append(w.namespaces(resource{namespaced: true}), metav1.NamespaceSystem) {
		out = append(out, request{
			verb:     "create",
			resource: "selfsubjectrulesreviews.authorization.k8s.io",
			ns:       ns,
			path:     reviews + "selfsubjectrulesreviews",
			body: fmt.Appendf(nil,
				`{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","spec":{"namespace":%q}}`, ns),
		})
		for _, verb := range []string{
			"*", "get", "list", "watch", "update", "create", "impersonate", "bind", "escalate",
		} {
			for _, in := range []struct{ group, resource string }{
				{"*", "*"},
				{"submariner.io", "clusters"},
				{"", "secrets"},
				{"rbac.authorization.k8s.io", "roles"},
			} {
				out = append(out, request{
					verb:     "create",
					resource: "selfsubjectaccessreviews.authorization.k8s.io",
					ns:       ns,
					name:     verb + " " + in.resource,
					path:     reviews + "selfsubjectaccessreviews",
					body: fmt.Appendf(nil,
						`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"namespace":%q,"verb":%q,"group":%q,"resource":%q}}}`,
						ns, verb, in.group, in.resource),
				})
			}
		}
	}
	return out
}
