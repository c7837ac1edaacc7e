package webhook

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"subctl/sdewan"
)

// permission allows a change of a rule to users with a role that has the rule's type, the value of
// its label sdewan-bucket-type, in the annotation sdewan-bucket-type-permission, for the resource
// of the rule. Which verbs they may use is for RBAC to decide, before.
//
// A rule without the label has the type "". As in the proposal, it is as little allowed as any
// other type that no role lists: the annotation must have "*" or "".
//
// A change needs both types, of the rule as it was and as it will be: relabelling is no way to a
// rule that one may not write. That holds for statuses, too.
type permission struct {
	reader client.Reader // the manager's cache
	exempt []string
}

// Handle implements admission.Handler.
func (p *permission) Handle(ctx context.Context, req admission.Request) admission.Response {
	if isExempt(req, p.exempt) || slices.Contains(req.UserInfo.Groups, masters) {
		return admission.Allowed("")
	}
	kind, before, after, err := decode(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var types []string
	for _, rule := range []sdewan.Rule{before, after} {
		if rule != nil && !slices.Contains(types, rule.GetLabels()[sdewan.BucketLabel]) {
			types = append(types, rule.GetLabels()[sdewan.BucketLabel])
		}
	}
	s, err := p.search(ctx, req.UserInfo, req.Namespace, kind.Resource, types)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError,
			fmt.Errorf("reading the roles of %q: %w", req.UserInfo.Username, err))
	}
	if len(s.missing) > 0 {
		return admission.Denied(refusal(req, kind, s.missing[0], s.left < 0))
	}
	return admission.Allowed("")
}

// refusal returns the message for a user who may not write rules of a type. More is true if not all
// annotations were read.
func refusal(req admission.Request, kind sdewan.Kind, bucket string, more bool) string {
	what := fmt.Sprintf("with the label %s=%s", sdewan.BucketLabel, bucket)
	if bucket == "" {
		what = fmt.Sprintf("without the label %s", sdewan.BucketLabel)
	}
	message := fmt.Sprintf(
		"%s may not change %s %s in namespace %s: no role of this user has the annotation %s with %q in the list of %q",
		req.UserInfo.Username, kind.Resource, what, req.Namespace, sdewan.BucketAnnotation, bucket, kind.Resource)
	if more {
		message += fmt.Sprintf(
			" (these annotations have more than %d KiB altogether, and only so much is read: bind fewer roles)",
			maxAnnotations>>10)
	}
	return message
}
