package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"subctl/sdewan"
)

// dependencies allows rules that refer only to rules of the same CNF that exist, and deletions of
// rules to which none refers. A rule that is being deleted counts as deleted. It also refuses the
// mistakes that sdewan.Check finds, and warns of those that sdewan.Doubts finds.
type dependencies struct {
	cached, live client.Reader
	exempt       []string
}

// Handle implements admission.Handler.
func (w *dependencies) Handle(ctx context.Context, req admission.Request) admission.Response {
	if isExempt(req, w.exempt) {
		return admission.Allowed("")
	}
	kind, before, after, err := decode(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var refusals []string
	switch {
	case after == nil:
		refusals, err = w.deletion(ctx, req.Namespace, kind, before)
	case after.GetDeletionTimestamp() != nil: // only finalizers change
	default:
		refusals, err = w.change(ctx, req.Namespace, kind, before, after)
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if len(refusals) > 0 {
		return admission.Denied(strings.Join(refusals, "; "))
	}
	if after == nil || after.GetDeletionTimestamp() != nil {
		return admission.Allowed("")
	}
	return admission.Allowed("").WithWarnings(sdewan.Doubts(after, time.Now())...)
}

// change returns what is wrong with a new or changed rule.
func (w *dependencies) change(
	ctx context.Context,
	namespace string,
	kind sdewan.Kind,
	before, after sdewan.Rule,
) (refusals []string, err error) {
	purpose := after.GetLabels()[sdewan.PurposeLabel]
	var had []sdewan.Use
	switch {
	case before != nil:
		if was := before.GetLabels()[sdewan.PurposeLabel]; was != purpose {
			return []string{
				fmt.Sprintf("the label %s cannot change from %q to %q: delete the %s and create it again",
					sdewan.PurposeLabel, was, purpose, kind.GVK.Kind),
			}, nil
		}
		had = kind.Uses(before)
	case purpose == "":
		return []string{
			fmt.Sprintf("the label %s is missing: set it to the label of the CNF to which the rule applies",
				sdewan.PurposeLabel),
		}, nil
	default:
		rival, err := w.rival(ctx, namespace, purpose, kind, after.GetName())
		if err != nil {
			return nil, err
		}
		if rival != "" {
			refusals = append(refusals,
				fmt.Sprintf("%s %s would be the same object on the CNF: use another name", rival, after.GetName()))
		}
	}
	if err := sdewan.Check(after); err != nil {
		refusals = append(refusals, err.Error())
	}
	seen := map[string]bool{}
	for _, use := range kind.Uses(after) {
		if seen[use.String()] ||
			slices.ContainsFunc(had, func(u sdewan.Use) bool { return u.Kind == use.Kind && u.Name == use.Name }) {
			continue
		}
		seen[use.String()] = true
		ok, err := w.exists(ctx, namespace, purpose, use)
		if err != nil {
			return nil, err
		}
		if !ok {
			refusals = append(
				refusals,
				fmt.Sprintf("%s: there is no %s %s with the label %s=%s in namespace %s: create it first", use.Field,
					use.Kind, use.Name, sdewan.PurposeLabel, purpose, namespace),
			)
		}
	}
	return refusals, nil
}

// rival returns the kind of another rule with the name that stands for the same object of the CNF.
func (w *dependencies) rival(
	ctx context.Context,
	namespace, purpose string,
	kind sdewan.Kind,
	name string,
) (string, error) {
	for _, k := range sdewan.Kinds() {
		if k.Collection != kind.Collection || k.GVK == kind.GVK {
			continue
		}
		rule, err := get(ctx, w.live, k, namespace, name)
		if err != nil {
			return "", err
		}
		if rule != nil && rule.GetLabels()[sdewan.PurposeLabel] == purpose {
			return k.GVK.Kind, nil
		}
	}
	return "", nil
}

// exists reports whether a rule that another one uses exists. The cache may not have a new rule
// yet.
func (w *dependencies) exists(ctx context.Context, namespace, purpose string, use sdewan.Use) (bool, error) {
	for _, reader := range []client.Reader{w.cached, w.live} {
		for _, k := range sdewan.Kinds() {
			if k.GVK.Kind != use.Kind {
				continue
			}
			rule, err := get(ctx, reader, k, namespace, use.Name)
			if err != nil {
				return false, err
			}
			if rule != nil && rule.GetDeletionTimestamp() == nil && rule.GetLabels()[sdewan.PurposeLabel] == purpose {
				return true, nil
			}
		}
	}
	return false, nil
}

func get(ctx context.Context, reader client.Reader, k sdewan.Kind, namespace, name string) (sdewan.Rule, error) {
	rule := k.New()
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, rule)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", k.GVK.Kind, name, err)
	}
	return rule, nil
}

// mentioned is the maximum number of users of a rule that a message names.
const mentioned = 5

// deletion returns who uses a rule, which therefore cannot be deleted.
func (w *dependencies) deletion(
	ctx context.Context,
	namespace string,
	kind sdewan.Kind,
	rule sdewan.Rule,
) ([]string, error) {
	if rule.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	purpose := rule.GetLabels()[sdewan.PurposeLabel]
	var users []string
	for _, k := range sdewan.Kinds() {
		if !k.MayUse(kind) {
			continue
		}
		list, ok := k.NewList().(client.ObjectList)
		if !ok {
			return nil, errors.New("a list of rules cannot be read")
		}
		if err := w.live.List(ctx, list, client.InNamespace(
			namespace), client.MatchingLabels{sdewan.PurposeLabel: purpose}); err != nil {
			return nil, fmt.Errorf("listing %s: %w", k.Resource, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if r, ok := o.(sdewan.Rule); ok && r.GetDeletionTimestamp() == nil &&
				slices.ContainsFunc(k.Uses(r), func(u sdewan.Use) bool {
					return u.Collection == kind.Collection && u.Name == rule.GetName()
				}) {
				users = append(users, k.GVK.Kind+" "+r.GetName())
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(users) == 0 {
		return nil, nil
	}
	// The same rule in the other group is as good.
	if rival, err := w.rival(ctx, namespace, purpose, kind, rule.GetName()); err != nil || rival == kind.GVK.Kind {
		return nil, err
	}
	slices.Sort(users)
	if more := len(users) - mentioned; more > 0 {
		users = append(users[:mentioned], fmt.Sprintf("%d others", more))
	}
	return []string{
		fmt.Sprintf("%s %s is used by %s: delete or change what uses it first", kind.GVK.Kind, rule.GetName(),
			strings.Join(users, ", ")),
	}, nil
}
