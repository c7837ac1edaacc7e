package rest

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

func (c *checker) policy(o *Policy) {
	if slices.Contains(Reserved, o.Name) {
		c.add("name", "every CNF has the policy %s: choose another name", quote(o.Name))
	}
	if len(o.Members) == 0 {
		c.add("members", "required: name at least one interface")
	}
	c.oneOf("last_resort", o.LastResort, Reserved...)
	used := map[string]bool{}
	for i, m := range o.Members {
		field := func(name string) string { return fmt.Sprintf("members[%d].%s", i, name) }
		c.required(field("interface"), m.Interface)
		c.required(field("metric"), m.Metric)
		c.number(field("metric"), m.Metric, 1, MaxMetric)
		c.required(field("weight"), m.Weight)
		c.number(field("weight"), m.Weight, 1, MaxWeight)
		c.number(field("max_loss"), m.MaxLoss, 1, MaxPercent)
		c.number(field("max_latency"), m.MaxLatency, 1, MaxMilliseconds)
		c.number(field("max_jitter"), m.MaxJitter, 1, MaxMilliseconds)
		if used[m.Interface] && m.Interface != "" {
			c.add(field("interface"), "same interface %s is used in different members", quote(m.Interface))
		}
		used[m.Interface] = true
	}
}

func (c *checker) rule(o *Rule) {
	c.required("policy", o.Policy)
	c.network("src_ip", o.SrcIP)
	c.ports("src_port", o.SrcPort)
	c.network("dest_ip", o.DestIP)
	c.ports("dest_port", o.DestPort)
	c.oneOf("proto", o.Proto, "tcp", "udp", "icmp", "all")
	c.oneOf("family", o.Family, families...)
	c.flag("sticky", o.Sticky)
	c.number("timeout", o.Timeout, 1, MaxSeconds)
}

func (c *checker) application(o *Application) {
	c.required("iplist", strings.Trim(o.IPList, ", "))
	for _, ip := range list(o.IPList) {
		c.network("iplist", ip)
	}
}

// service checks a Service. As on OpenWrt the code is 416 if nothing but ports is wrong.
func (c *checker) service(o *Service) {
	c.required("fullname", o.FullName)
	if o.FullName != "" && !isHost(o.FullName) {
		c.add("fullname", "%s is not a DNS name such as web.default.svc.cluster.local", quote(o.FullName))
	}
	c.required("port", o.Port)
	c.required("dport", o.DPort)
	if len(c.problems) == 0 {
		c.code = 416
	}
	c.number("port", o.Port, 1, math.MaxUint16)
	c.number("dport", o.DPort, 1, math.MaxUint16)
}

// list splits a list of values that are separated by commas, as in "192.0.2.1, 192.0.2.7". The list
// of "" is empty.
func list(s string) []string {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	all := strings.Split(s, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}
