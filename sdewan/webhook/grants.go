package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
	"subctl/sdewan"
)

// grants are the rights that the roles of a user give: lists of types by resources, as in sdewan.BucketAnnotation.
type grants []map[string][]string

// all is the right of a role that has all rights on everything: its holder could change any role, and the webhooks themselves.
var all = map[string][]string{"*": {"*"}}

// allow reports whether one of the grants allows to write rules of a resource and a type.
func (g grants) allow(resource, bucket string) bool {
	for _, lists := range g {
		for key, types := range lists {
			if match(key, resource) && slices.ContainsFunc(types, func(t string) bool { return match(t, bucket) }) {
				return true
			}
		}
	}
	return false
}

// match reports whether a pattern matches a text: "*" stands for any characters, and "?" for one.
func match(pattern, text string) bool {
	p, t, star, retry := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, retry = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			retry++
			p, t = star+1, retry
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// maxAnnotation is the longest annotation that is read, in bytes. Those of all roles of a user are read at each of his requests: who may write roles must
// not keep the webhooks busy.
const maxAnnotation = 8 << 10

// parse reads the annotation of a role. A role without one allows nothing.
func parse(annotations map[string]string) (map[string][]string, error) {
	text, ok := annotations[sdewan.BucketAnnotation]
	if !ok {
		return nil, nil
	}
	if len(text) > maxAnnotation {
		return nil, fmt.Errorf("annotation %s has %d bytes, and has no effect: at most %d are possible", sdewan.BucketAnnotation, len(text), maxAnnotation)
	}
	var lists map[string][]string
	if err := json.Unmarshal([]byte(text), &lists); err != nil {
		return nil, fmt.Errorf(`annotation %s must be JSON such as {"mwan3rules": ["app-intent"], "firewall*": ["*"]}, and has no effect: %w`, sdewan.BucketAnnotation, err)
	}
	return lists, nil
}

// The index of bindings by their subjects, and the forms of its keys. Names of users, groups and accounts are apart: a user cannot be
// taken for a group.
const subjectIndex = "sdewan.subject"

func subjectKey(kind, name string) string { return kind + "/" + name }

// subjectKeys returns the keys of a binding, as RBAC understands its subjects.
func subjectKeys(subjects []rbacv1.Subject, namespace string) (out []string) {
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
			out = append(out, subjectKey(s.Kind, s.Name))
		case rbacv1.ServiceAccountKind:
			out = append(out, subjectKey(rbacv1.UserKind, kube.ServiceAccountUser(cmp.Or(s.Namespace, namespace), s.Name)))
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

// grants returns what the roles of a user allow in a namespace.
func (p *permission) grants(ctx context.Context, user authenticationv1.UserInfo, namespace string) (grants, error) {
	keys := []string{subjectKey(rbacv1.UserKind, user.Username)}
	for _, g := range user.Groups {
		keys = append(keys, subjectKey(rbacv1.GroupKind, g))
	}
	var out grants
	add := func(lists map[string][]string, err error) error {
		out = append(out, lists)
		return err
	}
	for _, key := range keys {
		inNamespace := &rbacv1.RoleBindingList{}
		if err := p.reader.List(ctx, inNamespace, client.InNamespace(namespace), client.MatchingFields{subjectIndex: key}); err != nil {
			return nil, err
		}
		for _, b := range inNamespace.Items {
			if err := add(p.role(ctx, b.RoleRef, namespace, false)); err != nil {
				return nil, err
			}
		}
		everywhere := &rbacv1.ClusterRoleBindingList{}
		if err := p.reader.List(ctx, everywhere, client.MatchingFields{subjectIndex: key}); err != nil {
			return nil, err
		}
		for _, b := range everywhere.Items {
			if err := add(p.role(ctx, b.RoleRef, namespace, true)); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// role returns what a role allows. A role that does not exist, or whose annotation is no JSON, allows nothing.
func (p *permission) role(ctx context.Context, ref rbacv1.RoleRef, namespace string, everywhere bool) (map[string][]string, error) {
	if ref.APIGroup != rbacv1.GroupName {
		return nil, nil
	}
	switch ref.Kind {
	case "Role":
		role := &rbacv1.Role{}
		if err := p.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, role); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		lists, _ := parse(role.Annotations) // watch.go tells users what is wrong
		return lists, nil
	case "ClusterRole":
		return p.clusterRole(ctx, ref.Name, everywhere)
	}
	return nil, nil
}

// clusterRole returns what a ClusterRole allows, with the ClusterRoles that Kubernetes aggregates to it: edit has what sdewan-edit has.
func (p *permission) clusterRole(ctx context.Context, name string, everywhere bool) (map[string][]string, error) {
	out := map[string][]string{}
	seen := map[string]bool{}
	first := &rbacv1.ClusterRole{}
	if err := p.reader.Get(ctx, client.ObjectKey{Name: name}, first); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if everywhere && slices.ContainsFunc(first.Rules, isEverything) {
		return all, nil
	}
	for queue := []rbacv1.ClusterRole{*first}; len(queue) > 0; {
		role := queue[0]
		queue = queue[1:]
		if seen[role.Name] {
			continue
		}
		seen[role.Name] = true
		lists, _ := parse(role.Annotations)
		for key, types := range lists {
			out[key] = append(slices.Clip(out[key]), types...)
		}
		if role.AggregationRule == nil {
			continue
		}
		for _, selector := range role.AggregationRule.ClusterRoleSelectors {
			s, err := metav1.LabelSelectorAsSelector(&selector)
			if err != nil {
				continue
			}
			list := &rbacv1.ClusterRoleList{}
			if err := p.reader.List(ctx, list, client.MatchingLabelsSelector{Selector: s}); err != nil {
				return nil, err
			}
			queue = append(queue, list.Items...)
		}
	}
	return out, nil
}

// isEverything reports whether a rule grants all verbs on all resources.
func isEverything(r rbacv1.PolicyRule) bool {
	return slices.Contains(r.APIGroups, "*") && slices.Contains(r.Resources, "*") && slices.Contains(r.Verbs, "*") && len(r.ResourceNames) == 0
}
