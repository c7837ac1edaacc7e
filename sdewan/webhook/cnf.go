package webhook

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"subctl/internal/wake"
	"subctl/sdewan"
)

// oneCNF allows one Deployment with each value of the label sdewanPurpose in a namespace. The value
// cannot change or be removed, as upstream: the pods would keep the rules of the old one.
type oneCNF struct {
	live    client.Reader
	decoder admission.Decoder

	mu      sync.Mutex
	pending map[string]pendingCNF // by namespace and label
}

// pendingCNF is a Deployment that was allowed a moment ago, and may not exist yet.
type pendingCNF struct {
	name  string
	until time.Time
}

// settle is the time that an allowed Deployment may take until it exists: the API server stores it
// after the webhooks. A request for another one with the same label, at the same time, waits so
// long.
const settle = 2 * time.Second

// remember is for how long a pending Deployment is kept for requests whose list of Deployments
// began before: longer than any request takes.
const remember = time.Minute

// Handle implements admission.Handler.
func (w *oneCNF) Handle(ctx context.Context, req admission.Request) admission.Response {
	d := &appsv1.Deployment{}
	old := &appsv1.Deployment{}
	if err := w.decoder.DecodeRaw(req.Object, d); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the Deployment: %w", err))
	}
	if !creates(req) {
		if err := w.decoder.DecodeRaw(req.OldObject, old); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the Deployment: %w", err))
		}
	}
	return w.decide(ctx, req, d, old).WithWarnings(sharedAddresses(d)...)
}

// sharedAddresses returns a warning if several pods of a CNF would have the same addresses; nothing
// of other Deployments.
func sharedAddresses(d *appsv1.Deployment) []string {
	if d.Labels[sdewan.PurposeLabel] == "" || d.Spec.Replicas == nil || *d.Spec.Replicas < 2 {
		return nil
	}
	// the controller reports mistakes
	attachments, _ := sdewan.ParseAttachments(d.Spec.Template.Annotations[sdewan.NetworksAnnotation])
	for _, a := range attachments {
		if a.Address.IsValid() {
			return []string{
				fmt.Sprintf(
					"each of the %d pods of Deployment %s gets the address %v in network %s: omit ipAddress in the annotation %s, so that the network chooses addresses, or use one replica",
					*d.Spec.Replicas, d.Name, a.Address.Addr(), a.Network, sdewan.NetworksAnnotation),
			}
		}
	}
	return nil
}

// decide allows or denies a Deployment because of its label. old is the zero Deployment if there
// was none.
func (w *oneCNF) decide(ctx context.Context, req admission.Request, d, old *appsv1.Deployment) admission.Response {
	is := d.Labels[sdewan.PurposeLabel]
	was := old.Labels[sdewan.PurposeLabel]
	switch {
	case is == was:
		return admission.Allowed("")
	case was != "":
		return admission.Denied(
			fmt.Sprintf(
				"Deployment %s: the label %s cannot change from %q to %q, as its pods would keep the rules of %q: delete the Deployment and create it again",
				d.Name, sdewan.PurposeLabel, was, is, was),
		)
	}
	for {
		other, wait, err := w.other(ctx, req, d.Name, is)
		switch {
		case err != nil:
			return admission.Errored(http.StatusInternalServerError, fmt.Errorf("looking for other CNFs: %w", err))
		case other != "":
			return admission.Denied(
				fmt.Sprintf(
					"Deployment %s has the label %s=%s already: a label has one CNF in a namespace. Raise spec.replicas of %s, or use another label",
					other, sdewan.PurposeLabel, is, other),
			)
		case !wait:
			return admission.Allowed("")
		}
		if err := wake.After(ctx, settle/20); err != nil {
			return admission.Errored(http.StatusServiceUnavailable,
				fmt.Errorf("waiting for another Deployment with the same label: %w", err))
		}
	}
}

// other returns the name of another Deployment with the label. wait is true if there may soon be
// one. Otherwise the request is allowed, and its Deployment is the pending one.
func (w *oneCNF) other(
	ctx context.Context,
	req admission.Request,
	own, purpose string,
) (name string, wait bool, err error) {
	began := time.Now() // a Deployment that was pending before is in the list
	list := &appsv1.DeploymentList{}
	if err := w.live.List(ctx, list, client.InNamespace(
		req.Namespace), client.MatchingLabels{sdewan.PurposeLabel: purpose}); err != nil {
		return "", false, err
	}
	for _, d := range list.Items {
		if d.Name != own {
			return d.Name, false, nil
		}
	}
	if req.DryRun != nil && *req.DryRun {
		return "", false, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := req.Namespace + "/" + purpose
	now := time.Now()
	if p, ok := w.pending[key]; ok && began.Before(p.until) && (p.name != own || own == "") {
		return "", true, nil
	}
	for k, p := range w.pending {
		if now.Sub(p.until) > remember {
			delete(w.pending, k)
		}
	}
	w.pending[key] = pendingCNF{name: own, until: now.Add(settle)}
	return "", false, nil
}
