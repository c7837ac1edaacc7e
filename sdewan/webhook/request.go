package webhook

import (
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"subctl/sdewan"
)

// decode returns the kind of the request's object, and the object before and after; one of them is
// nil for creations and deletions. The name in a request may be empty: that of a deletecollection
// is, for each of its objects.
func decode(req admission.Request) (kind sdewan.Kind, before, after sdewan.Rule, err error) {
	kind, ok := sdewan.KindOfResource(req.Resource.Group, req.Resource.Resource)
	if !ok {
		return kind, nil, nil, fmt.Errorf("%s.%s is no kind of SD-EWAN", req.Resource.Resource, req.Resource.Group)
	}
	if before, err = read(kind, req.OldObject.Raw); err != nil {
		return kind, nil, nil, err
	}
	if after, err = read(kind, req.Object.Raw); err != nil {
		return kind, nil, nil, err
	}
	if before == nil && after == nil {
		return kind, nil, nil, fmt.Errorf("the request has no object")
	}
	return kind, before, after, nil
}

func read(kind sdewan.Kind, raw []byte) (sdewan.Rule, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	rule := kind.New()
	if err := json.Unmarshal(raw, rule); err != nil {
		return nil, fmt.Errorf("reading the %s: %w", kind.GVK.Kind, err)
	}
	return rule, nil
}

// isExempt reports whether the request is by one of these users.
func isExempt(req admission.Request, users []string) bool {
	return slices.Contains(users, req.UserInfo.Username)
}

// creates reports whether the request creates an object.
func creates(req admission.Request) bool { return req.Operation == admissionv1.Create }
