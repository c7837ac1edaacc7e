package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
	"subctl/sdewan"
)

// allows reports whether lists of types by resources, as in sdewan.BucketAnnotation, allow to write
// rules of a resource and a type.
func allows(lists map[string][]string, resource, bucket string) bool {
	for key, types := range lists {
		if match(key, resource) && slices.ContainsFunc(types, func(t string) bool { return match(t, bucket) }) {
			return true
		}
	}
	return false
}

// match reports whether a pattern matches a text: "*" stands for any characters, and "?" for one.
func match(pattern, text string) bool {
	p := 0
	t := 0
	star := -1
	retry := 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star = p
			retry = t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			retry++
			p = star + 1
			t = retry
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// The annotations of all roles of a user are read at each request of the user: whoever may write
// roles must not keep the webhooks busy, or fill their memory.
const (
	maxAnnotation  = 8 << 10   // bytes of an annotation that is read
	maxAnnotations = 256 << 10 // bytes of all annotations that are read for a request
)

// parse reads the annotation of a role. A role without one allows nothing.
func parse(annotations map[string]string) (map[string][]string, error) {
	text, ok := annotations[sdewan.BucketAnnotation]
	if !ok {
		return nil, nil
	}
	if len(text) > maxAnnotation {
		return nil, fmt.Errorf("annotation %s has %d bytes, and has no effect: at most %d are possible",
			sdewan.BucketAnnotation, len(text), maxAnnotation)
	}
	var lists map[string][]string
	if err := json.Unmarshal([]byte(text), &lists); err != nil {
		return nil, fmt.Errorf(
			`annotation %s must be JSON such as {"mwan3rules": ["app-intent"], "firewall*": ["*"]}, and has no effect: %w`,
			sdewan.BucketAnnotation, err)
	}
	return lists, nil
}

// The index of bindings by their subjects, and the forms of its keys. Names of users, groups and
// accounts are apart: a user cannot be taken for a group.
const subjectIndex = "sdewan.subject"

func subjectKey(kind, name string) string { return kind + "/" + name }

// subjectKeys returns the keys of a binding, as RBAC understands its subjects.
func subjectKeys(subjects []rbacv1.Subject, namespace string) (out []string) {
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
			out = append(out, subjectKey(s.Kind, s.Name))
		case rbacv1.ServiceAccountKind:
			out = append(out,
				subjectKey(rbacv1.UserKind, kube.ServiceAccountUser(cmp.Or(s.Namespace, namespace), s.Name)))
		}
	}
	return out
}

func indexBindings(ctx context.Context, f client.FieldIndexer) error {
	return errors.Join(
		f.IndexField(ctx, &rbacv1.RoleBinding{}, subjectIndex, func(o client.Object) []string {
			return subjectKeys(o.(*rbacv1.RoleBinding).Subjects, o.GetNamespace())
		}),
		f.IndexField(ctx, &rbacv1.ClusterRoleBinding{}, subjectIndex, func(o client.Object) []string {
			return subjectKeys(o.(*rbacv1.ClusterRoleBinding).Subjects, "")
		}))
}

// search looks for roles that allow to write rules of a resource in a namespace. It keeps nothing
// of a role that it has read.
type search struct {
	reader              client.Reader
	namespace, resource string
	missing             []string        // types that no role has allowed so far
	seen                map[string]bool // names of ClusterRoles
	left                int             // bytes of annotations that it may still read; negative if it has left out some
}

// search looks for roles of a user that allow to write rules of a resource and of these types in a
// namespace.
func (p *permission) search(
	ctx context.Context,
	user authenticationv1.UserInfo,
	namespace, resource string,
	types []string,
) (*search, error) {
	references, err := p.references(ctx, user, namespace)
	if err != nil {
		return nil, err
	}
	s := &search{
		reader:    p.reader,
		namespace: namespace,
		resource:  resource,
		missing:   types,
		seen:      map[string]bool{},
		left:      maxAnnotations,
	}
	for _, r := range references {
		if len(s.missing) == 0 {
			break
		}
		if err := s.role(ctx, r); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// reference is a role that bindings name. Everywhere is true if they are ClusterRoleBindings.
type reference struct {
	everywhere bool
	kind, name string
}

// references returns the roles of a user in a namespace, each one once. Those that administrators
// of the cluster have bound come first: an administrator of the namespace cannot keep them from
// being read.
func (p *permission) references(
	ctx context.Context,
	user authenticationv1.UserInfo,
	namespace string,
) ([]reference, error) {
	keys := []string{subjectKey(rbacv1.UserKind, user.Username)}
	for _, g := range user.Groups {
		keys = append(keys, subjectKey(rbacv1.GroupKind, g))
	}
	found := map[reference]bool{}
	add := func(everywhere bool, r rbacv1.RoleRef) {
		if r.APIGroup == rbacv1.GroupName {
			found[reference{everywhere, r.Kind, r.Name}] = true
		}
	}
	for _, key := range keys {
		everywhere := &rbacv1.ClusterRoleBindingList{}
		if err := p.reader.List(ctx, everywhere, client.MatchingFields{subjectIndex: key},
			client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range everywhere.Items {
			add(true, everywhere.Items[i].RoleRef)
		}
		inNamespace := &rbacv1.RoleBindingList{}
		if err := p.reader.List(ctx, inNamespace, client.InNamespace(namespace),
			client.MatchingFields{subjectIndex: key}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range inNamespace.Items {
			add(false, inNamespace.Items[i].RoleRef)
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b reference) int {
		if a.everywhere != b.everywhere {
			if a.everywhere {
				return -1
			}
			return 1
		}
		return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
	}), nil
}

// role reads a role. One that does not exist allows nothing.
func (s *search) role(ctx context.Context, r reference) error {
	switch r.kind {
	case "Role":
		role := &rbacv1.Role{}
		if err := s.reader.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: r.name}, role,
			client.UnsafeDisableDeepCopy); err != nil {
			return client.IgnoreNotFound(err)
		}
		s.read(role.Annotations)
	case "ClusterRole":
		return s.clusterRole(ctx, r)
	}
	return nil
}

// clusterRole reads a ClusterRole, with the ClusterRoles that Kubernetes aggregates to it: edit has
// what sdewan-edit has. Whoever has all rights on everything needs no annotation, as such a user
// could change any role, and the webhooks themselves.
func (s *search) clusterRole(ctx context.Context, r reference) error {
	first := &rbacv1.ClusterRole{}
	if err := s.reader.Get(ctx, client.ObjectKey{Name: r.name}, first, client.UnsafeDisableDeepCopy); err != nil {
		return client.IgnoreNotFound(err)
	}
	if r.everywhere && slices.ContainsFunc(first.Rules, isEverything) {
		s.missing = nil
		return nil
	}
	for queue := []rbacv1.ClusterRole{*first}; len(queue) > 0; {
		role := queue[0]
		queue = queue[1:]
		if s.seen[role.Name] {
			continue
		}
		s.seen[role.Name] = true
		s.read(role.Annotations)
		if role.AggregationRule == nil {
			continue
		}
		for _, selector := range role.AggregationRule.ClusterRoleSelectors {
			chosen, err := metav1.LabelSelectorAsSelector(&selector)
			if err != nil {
				continue
			}
			list := &rbacv1.ClusterRoleList{}
			if err := s.reader.List(ctx, list, client.MatchingLabelsSelector{Selector: chosen},
				client.UnsafeDisableDeepCopy); err != nil {
				return err
			}
			queue = append(queue, list.Items...)
		}
	}
	return nil
}

// read removes from the missing types what the annotation of a role allows. One that is no JSON, or
// too long, allows nothing: watch.go tells users so.
func (s *search) read(annotations map[string]string) {
	size := len(annotations[sdewan.BucketAnnotation])
	if size > maxAnnotation || s.left < 0 {
		return
	}
	if s.left -= size; s.left < 0 {
		return
	}
	lists, _ := parse(annotations)
	s.missing = slices.DeleteFunc(s.missing, func(bucket string) bool { return allows(lists, s.resource, bucket) })
}

// isEverything reports whether a rule grants all verbs on all resources.
func isEverything(r rbacv1.PolicyRule) bool {
	return slices.Contains(r.APIGroups, "*") && slices.Contains(r.Resources, "*") && slices.Contains(r.Verbs, "*") &&
		len(r.ResourceNames) == 0
}
