package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/sdewan"
)

// Finalizer is on a rule that all pods of its CNF hold, or have held. It is removed when no pod
// does, or the CNF is gone. It has a path, as the API server wants it: otherwise it warns at each
// change of each rule.
const Finalizer = "sdewan.akraino.org/rule"

// finalizers is the end of the names of all finalizers of upstream's controller, and of earlier
// versions of this one, which nobody else removes.
const finalizers = ".finalizers.sdewan.akraino.org"

// fieldOwner owns the status of rules.
const fieldOwner = kube.FieldOwner + "-sdewan"

// Reasons of the condition Applied.
const (
	// Applied: all pods of the CNF hold the rule as it is. The condition is True.
	Applied = "Applied"
	// NoPurpose: the rule has no label sdewanPurpose.
	NoPurpose = "NoPurpose"
	// NoCNF: no Deployment has the label.
	NoCNF = "NoCNF"
	// SeveralCNFs: several Deployments have the label.
	SeveralCNFs = "SeveralCNFs"
	// NoPods: the CNF has no pods, because it is scaled to zero, or its pods do not have the label.
	NoPods = "NoPods"
	// NotReady: a pod is not ready, or pods were not ready too often, and have been ready for a
	// short time only: see readiness. The pods that are ready have the rule.
	NotReady = "NotReady"
	// Invalid: the rule cannot be on this CNF, because of a network or a Service that is missing.
	Invalid = "Invalid"
	// NameTaken: an older rule stands for the object with this name.
	NameTaken = "NameTaken"
	// Rejected: a pod does not accept the object, because an object that it refers to is missing,
	// or its limits are exceeded, or it fails to store the object (5xx), or does not answer about
	// it.
	Rejected = "Rejected"
	// RestartFailed: a pod has the object, and its service did not restart with it.
	RestartFailed = "RestartFailed"
	// NoEffect: a pod has the object, which has no effect there, or of which a part has none.
	NoEffect = "NoEffect"
	// NotInKernel: the kernel of a pod does not hold the configuration that the pod has.
	NotInKernel = "NotInKernel"
	// Unfinished: a pod answers so slowly, or fails to store so many objects, that others were not
	// sent yet.
	Unfinished = "Unfinished"
	// Unreachable: a ready pod does not answer, or answers with nonsense.
	Unreachable = "Unreachable"
	// Unauthorized: a pod does not accept the password.
	Unauthorized = "Unauthorized"
	// Untrusted: the certificate of a pod is not accepted.
	Untrusted = "Untrusted"
	// NoCredentials: the Secrets with the password and the CA are missing or incomplete.
	NoCredentials = "NoCredentials"
)

// problem is the reason why a rule is not in sync; the zero problem means that it is.
type problem struct {
	reason  string
	message string // with the remedy
}

// ofRule reports whether the problem is one of the rule alone, and not of its CNF.
func (p problem) ofRule() bool {
	return slices.Contains([]string{Invalid, NameTaken, Rejected, NoEffect, NoPurpose, NoCNF}, p.reason)
}

// byCNF reports whether a CNF is the cause of the problem, and may word it.
func (p problem) byCNF() bool {
	return slices.Contains(
		[]string{Rejected, RestartFailed, NoEffect, NotInKernel, Unfinished, Unreachable, Unauthorized, Untrusted},
		p.reason)
}

// verdict is the state of a rule after its CNF was synced.
type verdict struct {
	problem
	gone    bool // no pod holds the object of a deleted rule
	written bool // a pod was given the object, or a change of it
}

// report writes the finalizer and the status of rules, if they change. It writes as much as it can.
func (r *cnfReconciler) report(ctx context.Context, rules []rule, of func(rule) verdict) error {
	var mu sync.Mutex
	var errs []error
	var group sync.WaitGroup
	for _, x := range rules {
		v := of(x)
		if !r.toReport(x, v) || r.hasMoved(ctx, x) {
			continue
		}
		if err := r.writes.Take(ctx, x.GetNamespace()); err != nil {
			group.Wait()
			return err
		}
		group.Go(func() {
			defer r.writes.Give(x.GetNamespace())
			if err := client.IgnoreNotFound(r.write(ctx, x, v)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	group.Wait()
	return firstFew(errs)
}

// hasMoved reports whether a rule is another CNF's by now, whose reports write its status. A change
// of a label is no new generation.
func (r *cnfReconciler) hasMoved(ctx context.Context, x rule) bool {
	now := x.kind.New()
	return r.client.Get(ctx, client.ObjectKeyFromObject(x.Rule), now) == nil && moved(x, now)
}

func moved(from, to metav1.Object) bool {
	return from.GetLabels()[sdewan.PurposeLabel] != to.GetLabels()[sdewan.PurposeLabel]
}

// toReport reports whether there is anything to write.
func (r *cnfReconciler) toReport(x rule, v verdict) bool {
	if x.deleting() && v.gone {
		return len(OthersFinalizers(x)) < len(x.GetFinalizers())
	}
	if v.reason == "" && !x.deleting() && !slices.Contains(x.GetFinalizers(), Finalizer) {
		return true
	}
	_, changed := status(x, v, x.GetResourceVersion(), time.Time{})
	return changed
}

// write writes the finalizer and then the status: a rule that counts as applied has its finalizer.
func (r *cnfReconciler) write(ctx context.Context, x rule, v verdict) error {
	if x.deleting() && v.gone {
		return r.setFinalizers(ctx, x, OthersFinalizers(x))
	}
	if v.reason == "" && !x.deleting() && !slices.Contains(x.GetFinalizers(), Finalizer) {
		if err := r.setFinalizers(ctx, x, append(OthersFinalizers(x), Finalizer)); err != nil {
			return err
		}
	}
	s, changed := status(x, v, x.GetResourceVersion(), r.now())
	if !changed {
		return nil
	}
	r.announce(x, s)
	patch, err := statusPatch(x.GetUID(), s)
	if err != nil {
		return err
	}
	if err := r.client.Status().Patch(ctx, x.Rule.(client.Object), client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("writing the status of %s %s/%s: %w", x.kind.GVK.Kind, x.GetNamespace(), x.GetName(), err)
	}
	return nil
}

// statusPatch returns the merge patch that makes s the status of the object with a UID. A
// server-side apply would do the same, and take an API server nearly twice as long: with 10,000
// rules, that is most of the time that everything takes. It removes what upstream's controller may
// have written.
func statusPatch(uid types.UID, s batch.RuleStatus) ([]byte, error) {
	status := map[string]any{
		"appliedVersion":     nil,
		"appliedTime":        nil,
		"inSync":             s.InSync,
		"observedGeneration": s.ObservedGeneration,
		"conditions":         s.Conditions,
		"appliedGeneration":  nil,
		"state":              nil,
		"message":            nil,
	}
	if s.InSync {
		status["appliedVersion"] = s.AppliedVersion
		status["appliedTime"] = s.AppliedTime
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
}

// setFinalizers changes the finalizers of a rule that nobody else has changed meanwhile, and
// updates its resource version.
func (r *cnfReconciler) setFinalizers(ctx context.Context, x rule, to []string) error {
	o := x.Rule.(client.Object)
	before := o.DeepCopyObject().(client.Object)
	o.SetFinalizers(to)
	s := *x.RuleStatus()
	err := r.client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	*x.RuleStatus() = s
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("changing the finalizers of %s %s/%s: %w", x.kind.GVK.Kind, x.GetNamespace(), x.GetName(),
			err)
	}
	return err
}

// OthersFinalizers returns the finalizers of a rule that neither this controller nor upstream's
// sets.
func OthersFinalizers(r metav1.Object) []string {
	return slices.DeleteFunc(slices.Clone(r.GetFinalizers()),
		func(f string) bool { return f == Finalizer || strings.HasSuffix(f, finalizers) })
}

// status returns the status of a rule, and whether it differs from the one that it has in more than
// times.
func status(x rule, v verdict, version string, now time.Time) (s batch.RuleStatus, changed bool) {
	old := *x.RuleStatus()
	s = batch.RuleStatus{ObservedGeneration: x.GetGeneration(), Conditions: slices.Clone(old.Conditions)}
	c := metav1.Condition{
		Type:               batch.ConditionApplied,
		ObservedGeneration: s.ObservedGeneration,
		LastTransitionTime: metav1.NewTime(now),
	}
	if v.reason == "" && !x.deleting() {
		c.Status = metav1.ConditionTrue
		c.Reason = Applied
		c.Message = "all pods of the CNF have the rule"
		s.InSync = true
		s.AppliedVersion = version
		s.AppliedTime = &metav1.Time{Time: now}
		if x.inSync() && !v.written { // and has been since it was applied
			s.AppliedVersion = old.AppliedVersion
			s.AppliedTime = old.AppliedTime
		}
	} else {
		c.Status = metav1.ConditionFalse
		c.Reason = v.reason
		c.Message = bounded(v.message)
	}
	changed = meta.SetStatusCondition(&s.Conditions, c)
	return s, changed || s.InSync != old.InSync || s.AppliedVersion != old.AppliedVersion ||
		s.ObservedGeneration != old.ObservedGeneration
}

// announce writes an Event about a rule that cannot be applied, when that becomes known. What is
// wrong with a CNF is an Event of the CNF alone, as it may have thousands of rules.
func (r *cnfReconciler) announce(x rule, s batch.RuleStatus) {
	old := meta.FindStatusCondition(x.RuleStatus().Conditions, batch.ConditionApplied)
	is := meta.FindStatusCondition(s.Conditions, batch.ConditionApplied)
	p := problem{is.Reason, is.Message}
	if is.Status == metav1.ConditionTrue || !p.ofRule() ||
		old != nil && old.Reason == is.Reason && old.Message == is.Message {
		return
	}
	r.events.Eventf(x.Rule, nil, corev1.EventTypeWarning, is.Reason, "Apply", "%s", is.Message)
}

// maxMessage bounds messages: a status may have 32 KiB, an Event 1 KiB.
const maxMessage = 1000

func bounded(s string) string {
	if len(s) > maxMessage {
		return strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}

// oneLine returns what errors.Join has joined in one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// firstFew returns an error with the first of many errors, which usually are all the same.
func firstFew(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	if more := len(errs) - 1; more > 0 {
		return fmt.Errorf("%w (and %d more)", errs[0], more)
	}
	return errs[0]
}
