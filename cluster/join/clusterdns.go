package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clusterdns"
	"subctl/internal/kube"
	"subctl/internal/progress"
	"subctl/internal/words"
	"subctl/services"
)

// dnsRef returns the ConfigMap that --coredns-custom-configmap names; nil if it is not set.
func (o Options) dnsRef() *v1alpha1.ConfigMapRef {
	if o.CoreDNSConfig == "" {
		return nil
	}
	ns, name, ok := strings.Cut(o.CoreDNSConfig, "/")
	if !ok {
		ns, name = metav1.NamespaceSystem, ns
	}
	return &v1alpha1.ConfigMapRef{ConfigMapName: name, Namespace: ns}
}

// dnsRefText returns the reference as --coredns-custom-configmap specifies it; empty if it is nil.
func dnsRefText(ref *v1alpha1.ConfigMapRef) string {
	switch {
	case ref == nil || ref.ConfigMapName == "":
		return ""
	case ref.Namespace == "" || ref.Namespace == metav1.NamespaceSystem:
		return ref.ConfigMapName
	}
	return ref.Namespace + "/" + ref.ConfigMapName
}

// checkDNSConfig returns the mistakes in the name of that ConfigMap.
func (o Options) checkDNSConfig() error {
	ref := o.dnsRef()
	if ref == nil {
		return nil
	}
	texts := append(validation.IsDNS1123Subdomain(ref.ConfigMapName), validation.IsDNS1123Label(ref.Namespace)...)
	var errs []error
	for _, text := range texts {
		errs = append(errs, fmt.Errorf("%s %s is not NAME or NAMESPACE/NAME of a ConfigMap: %s",
			o.source("coredns-custom-configmap"), o.CoreDNSConfig, text))
	}
	return errors.Join(errs...)
}

// dnsFields sets the fields about the cluster's DNS.
func (r request) dnsFields(spec *v1alpha1.SubmarinerSpec) {
	if ref := r.dnsRef(); dnsRefText(ref) != dnsRefText(spec.CoreDNSCustomConfig) {
		spec.CoreDNSCustomConfig = ref
	}
	if spec.ServiceDiscovery == nil && !r.DNS {
		spec.ServiceDiscovery = &v1alpha1.ServiceDiscoverySpec{}
	}
	if spec.ServiceDiscovery != nil {
		spec.ServiceDiscovery.LeaveDNS = !r.DNS
	}
}

// leavesDNS reports whether the user changes the cluster's DNS without subctl.
func leavesDNS(sub *v1alpha1.Submariner) bool {
	return sub.Spec.ServiceDiscovery != nil && sub.Spec.ServiceDiscovery.LeaveDNS
}

// dnsSettings returns where the configuration of the cluster's DNS is, as a Submariner specifies
// it.
func (j *Operation) dnsSettings(sub *v1alpha1.Submariner) clusterdns.Settings {
	return clusterdns.Settings{Version: j.Member.Version, Ref: sub.Spec.CoreDNSCustomConfig}
}

// hooked reports whether an earlier join has changed the cluster's DNS.
func (p *Plan) hooked() bool {
	return p.Before != nil && p.Before.Annotations[clusterdns.Annotation] != ""
}

// undoesDNS reports whether the change of an earlier join is undone: the user asks for --dns=false,
// which also removes a block that an earlier version of subctl has left; there is no service
// discovery any more; or the block moves to another ConfigMap.
func (p *Plan) undoesDNS() bool {
	sub := p.Submariner
	before := p.Before
	if !p.hooked() {
		return p.FreeDNS
	}
	moved := dnsRefText(before.Spec.CoreDNSCustomConfig) != dnsRefText(sub.Spec.CoreDNSCustomConfig)
	return moved || leavesDNS(sub) || !sub.Spec.ServiceDiscoveryEnabled
}

// clusterDNS makes the cluster's DNS forward names of imported Services, and undoes the change of
// an earlier join. It does not touch what the user changes.
func (j *Operation) clusterDNS(ctx context.Context) error {
	sub := j.Plan.Submariner
	if j.Plan.undoesDNS() {
		if err := j.undoDNS(ctx); err != nil {
			return err
		}
	} else if before := j.Plan.Before; leavesDNS(sub) && !sub.Spec.ServiceDiscoveryEnabled &&
		before != nil && before.Spec.ServiceDiscoveryEnabled {
		j.warnOfDNS(ctx)
	}
	switch {
	case !sub.Spec.ServiceDiscoveryEnabled:
		return nil
	case leavesDNS(sub):
		j.noteLeftDNS()
		return nil
	}
	return j.hookDNS(ctx)
}

// undoDNS undoes the change of an earlier join. If it cannot, the change stays recorded, so that
// the next join, or uninstall, tries again.
func (j *Operation) undoDNS(ctx context.Context) error {
	h, err := clusterdns.Remove(ctx, j.Member, j.dnsSettings(j.Plan.Before))
	if err != nil {
		return err
	}
	if lines := h.Removed(); len(lines) > 0 {
		j.Report.List("the cluster's DNS:", lines)
	}
	j.reportUndone(h)
	if !j.Plan.hooked() || h.Reason != "" {
		return nil
	}
	return j.recordDNS(ctx, nil)
}

// reportUndone reports what the plan of Undo leaves to a person, unless no join has changed the
// cluster's DNS: then a person has.
func (j *Operation) reportUndone(h clusterdns.Hook) {
	if !j.Plan.hooked() {
		return
	}
	if h.Reason != "" {
		j.Report.Warn("the cluster's DNS still forwards %s to the DNS servers of subctl: %s\n%s", services.Domain,
			h.Reason,
			h.Commands)
	}
	for _, note := range h.Notes {
		j.Report.Warn("%s", note)
	}
}

// noteLeftDNS reports what the user has to do with --dns=false.
func (j *Operation) noteLeftDNS() {
	j.Report.Note("the cluster's DNS is left alone: it must forward %s to the address of Service %s/%s "+
		"(see docs/services.md)", services.Domain, cluster.Namespace, cluster.DNSName)
}

// warnOfDNS reports what goes on forwarding to the DNS servers that are about to go. Joining needs
// no right to read that.
func (j *Operation) warnOfDNS(ctx context.Context) {
	f, err := clusterdns.Read(ctx, j.Member, j.Member.Version, j.Plan.Before.Spec.CoreDNSCustomConfig)
	if err != nil {
		return
	}
	if places := clusterdns.Undo(f).Places(); len(places) > 0 {
		j.Report.Warn("the cluster's DNS is left alone, and forwards %s to DNS servers that do not exist any more: "+
			"remove the server block of this domain from %s", services.Domain, words.List(places))
	}
}

// hookDNS makes the cluster's DNS forward names of imported Services.
func (j *Operation) hookDNS(ctx context.Context) error {
	address, err := j.dnsAddress(ctx)
	if apierrors.IsForbidden(err) {
		j.Report.Warn("the cluster's DNS does not forward %s: %v: let an administrator of the cluster join again",
			services.Domain, err)
		return nil
	}
	if err != nil {
		return err
	}
	if address == "" {
		return fmt.Errorf("the Service %s/%s has no cluster IP: delete it and join again", cluster.Namespace,
			cluster.DNSName)
	}
	settings := j.dnsSettings(j.Plan.Submariner)
	settings.Address = address
	h, err := clusterdns.Install(ctx, j.Member, settings)
	if err != nil {
		return err
	}
	var kind *string
	if h.Ours && h.Reason == "" {
		kind = (*string)(&h.Kind)
	}
	reportDNS(j.Report, h, "changed")
	return j.recordDNS(ctx, kind)
}

// dnsAddress returns the address of the DNS servers of imported Services; empty if there is none
// yet.
func (j *Operation) dnsAddress(ctx context.Context) (string, error) {
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.DNSName}
	found, err := kube.Optional(ctx, j.Member, &corev1.Service{}, key)
	if err != nil || found == nil || found.Spec.ClusterIP == corev1.ClusterIPNone {
		return "", err
	}
	return found.Spec.ClusterIP, nil
}

// recordDNS records on the Submariner how the cluster's DNS is changed, for the agent that repairs
// it; nil: not at all.
func (j *Operation) recordDNS(ctx context.Context, kind *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{clusterdns.Annotation: kind},
	}})
	if err != nil {
		return err
	}
	sub := &v1alpha1.Submariner{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: v1alpha1.SubmarinerName,
	}}
	err = j.Member.Patch(ctx, sub, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(kube.FieldOwner))
	if err != nil {
		return fmt.Errorf("recording the change of the cluster's DNS: %w", err)
	}
	return nil
}

// ShowDNS reports what Run would change in the cluster's DNS. It writes nothing.
func (j *Operation) ShowDNS(ctx context.Context) error {
	sub := j.Plan.Submariner
	if j.Plan.undoesDNS() {
		settings := j.dnsSettings(j.Plan.Before)
		f, err := clusterdns.Read(ctx, j.Member, settings.Version, settings.Ref)
		if err != nil {
			return fmt.Errorf("reading the configuration of the cluster's DNS: %w", err)
		}
		h := clusterdns.Undo(f)
		if places := h.Places(); len(places) > 0 {
			j.Report.Note("would remove from the cluster's DNS what subctl has added: %s", words.List(places))
		}
		j.reportUndone(h)
	}
	if !sub.Spec.ServiceDiscoveryEnabled || leavesDNS(sub) {
		return nil
	}
	address, err := j.dnsAddress(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	if address == "" {
		address = "<address of Service " + cluster.Namespace + "/" + cluster.DNSName + ">"
	}
	f, err := clusterdns.Read(ctx, j.Member, j.Member.Version, sub.Spec.CoreDNSCustomConfig)
	if err != nil {
		return fmt.Errorf("reading the configuration of the cluster's DNS: %w", err)
	}
	reportDNS(j.Report, clusterdns.Plan(f, address), "would change")
	return nil
}

// reportDNS reports the plan for the cluster's DNS.
func reportDNS(r *progress.Reporter, h clusterdns.Hook, changed string) {
	switch {
	case h.Reason != "":
		r.Warn("%s does not forward %s to the DNS servers of subctl: %s\n%s", h.Manager, services.Domain, h.Reason,
			h.Commands)
	case h.State == clusterdns.Multicluster:
		r.Note("CoreDNS answers for %s by its own option multicluster (see docs/services.md)", services.Domain)
	case h.State == clusterdns.Current:
		r.Done("%s forwards %s to the DNS servers of subctl", h.Manager, services.Domain)
	default:
		r.List(fmt.Sprintf("%s %s, so that %s forwards %s:", changed, h.Where, h.Manager, services.Domain),
			strings.Split(strings.TrimSuffix(h.Stanza, "\n"), "\n"))
	}
	for _, note := range h.Notes {
		r.Warn("%s", note)
	}
}
