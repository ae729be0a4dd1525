// Apache's Go client against a broker: each check says its name when it holds; the first that does not ends the program.
//
// Usage: client SERVICE_URL WEB_URL
package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	wait      = 60 * time.Second
	namespace = "public/default"
)

type check struct {
	name string
	run  func(pulsar.Client, string)
}

var checks = []check{
	{"access modes", accessModes},
	{"batches by key", batchesByKey},
	{"chunks", chunks},
	{"acknowledged in part", acknowledgedInPart},
	{"dead letters", deadLetters},
	{"seek", seek},
	{"schemas", schemas},
	{"pattern", pattern},
	{"unloaded", unloaded},
	{"terminated", terminated},
	{"no transactions", noTransactions},
}

var web string

func main() {
	web = os.Args[2]
	client := must(pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], OperationTimeout: wait}))
	for number, one := range checks {
		one.run(client, fmt.Sprintf("persistent://%s/go-%d", namespace, number))
		fmt.Println("holds:", one.name)
	}
	client.Close()
}

func must[T any](value T, err error) T {
	hold(err == nil, "%v", err)
	return value
}

func hold(condition bool, format string, words ...any) {
	if !condition {
		panic(fmt.Sprintf(format, words...))
	}
}

func equal(got, wanted any) {
	hold(reflect.DeepEqual(got, wanted), "got %v, wanted %v", got, wanted)
}

func numbered(count int) []*pulsar.ProducerMessage {
	messages := make([]*pulsar.ProducerMessage, count)
	for i := range messages {
		messages[i] = &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i)), Key: fmt.Sprint("k", i%7)}
	}
	return messages
}

// sendAll sends as fast as it can and waits for all receipts.
func sendAll(producer pulsar.Producer, messages []*pulsar.ProducerMessage) []pulsar.MessageID {
	ids, errs := make([]pulsar.MessageID, len(messages)), make([]error, len(messages))
	var group sync.WaitGroup
	for i, message := range messages {
		i := i
		group.Add(1)
		producer.SendAsync(context.Background(), message, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			ids[i], errs[i] = id, err
			group.Done()
		})
	}
	group.Wait()
	for _, err := range errs {
		hold(err == nil, "%v", err)
	}
	return ids
}

func receive(consumer pulsar.Consumer, count int) []pulsar.Message {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	messages := make([]pulsar.Message, count)
	for i := range messages {
		messages[i] = must(consumer.Receive(ctx))
	}
	return messages
}

func words(messages []pulsar.Message) string {
	var all []string
	for _, message := range messages {
		all = append(all, string(message.Payload()))
	}
	return strings.Join(all, " ")
}

func ask(method, path string) {
	request := must(http.NewRequest(method, web+"/admin/v2/"+path, nil))
	answer := must(http.DefaultClient.Do(request))
	answer.Body.Close()
	hold(answer.StatusCode < 300, "%s %s: %s", method, path, answer.Status)
}

func accessModes(client pulsar.Client, topic string) {
	exclusive := pulsar.ProducerOptions{Topic: topic, ProducerAccessMode: pulsar.ProducerAccessModeExclusive}
	first := must(client.CreateProducer(exclusive))
	_, err := client.CreateProducer(exclusive)
	hold(err != nil && strings.Contains(err.Error(), "ProducerFenced"), "a second exclusive producer: %v", err)
	exclusive.ProducerAccessMode = pulsar.ProducerAccessModeWaitForExclusive
	waiting := make(chan pulsar.Producer)
	go func() { waiting <- must(client.CreateProducer(exclusive)) }()
	sendAll(first, numbered(1))
	first.Close()
	next := <-waiting
	sendAll(next, numbered(1))
	next.Close()
}

func batchesByKey(client pulsar.Client, topic string) {
	options := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s", Type: pulsar.KeyShared}
	consumers := []pulsar.Consumer{must(client.Subscribe(options)), must(client.Subscribe(options))}
	producer := must(client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, BatcherBuilderType: pulsar.KeyBasedBatchBuilder, CompressionType: pulsar.LZ4,
	}))
	go sendAll(producer, numbered(5000))
	owner, last := map[string]int{}, map[string]int{}
	for count := 0; count < 5000; count++ {
		var message pulsar.ConsumerMessage
		var from int
		select {
		case message = <-consumers[0].Chan():
		case message = <-consumers[1].Chan():
			from = 1
		case <-time.After(wait):
			hold(false, "%d of 5000 came", count)
		}
		number := 0
		must(fmt.Sscan(string(message.Payload()), &number))
		key := message.Key()
		before, known := last[key]
		hold(!known || (number > before && owner[key] == from), "key %s: %d after %d", key, number, before)
		owner[key], last[key] = from, number
		hold(message.Ack(message.Message) == nil, "ack")
	}
}

func chunks(client pulsar.Client, topic string) {
	producer := must(client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 10_000,
	}))
	payload := bytes.Repeat([]byte("0123456789"), 20_000)
	sendAll(producer, []*pulsar.ProducerMessage{{Payload: payload}, {Payload: []byte("next")}})
	reader := must(client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()}))
	hold(bytes.Equal(must(reader.Next(context.Background())).Payload(), payload), "another payload")
	equal(string(must(reader.Next(context.Background())).Payload()), "next")
	hold(!reader.HasNext(), "there is more")
	reader.Close()
}

func acknowledgedInPart(client pulsar.Client, topic string) {
	options := pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: pulsar.Shared,
		AckWithResponse: true, EnableBatchIndexAcknowledgment: true,
	}
	consumer := must(client.Subscribe(options))
	producer := must(client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, BatchingMaxPublishDelay: 200 * time.Millisecond,
	}))
	sendAll(producer, numbered(10))
	for i, message := range receive(consumer, 10) {
		if i%2 == 0 {
			hold(consumer.Ack(message) == nil, "ack")
		}
	}
	consumer.Close()
	consumer = must(client.Subscribe(options))
	equal(words(receive(consumer, 5)), "1 3 5 7 9")
	hold(consumer.Unsubscribe() == nil, "unsubscribe")
}

func deadLetters(client pulsar.Client, topic string) {
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: pulsar.Shared, NackRedeliveryDelay: 100 * time.Millisecond,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: topic + "-dead"},
	}))
	dead := must(client.Subscribe(pulsar.ConsumerOptions{Topic: topic + "-dead", SubscriptionName: "s"}))
	sendAll(must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic})), numbered(1))
	for count := uint32(0); count < 2; count++ {
		message := receive(consumer, 1)[0]
		equal(message.RedeliveryCount(), count)
		consumer.Nack(message)
	}
	equal(words(receive(dead, 1)), "0")
	consumer.Close()
	dead.Close()
}

func seek(client pulsar.Client, topic string) {
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"}))
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}))
	ids := sendAll(producer, numbered(5))
	messages := receive(consumer, 5)
	hold(consumer.Seek(ids[2]) == nil, "seek by id")
	equal(words(receive(consumer, 3)), "2 3 4")
	hold(consumer.SeekByTime(messages[0].PublishTime()) == nil, "seek by time")
	equal(words(receive(consumer, 5)), "0 1 2 3 4")
	consumer.Close()
}

func schemas(client pulsar.Client, topic string) {
	record := `{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}`
	type value struct {
		A string `json:"a"`
	}
	json := pulsar.NewJSONSchema(record, nil)
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s", Schema: json}))
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: json}))
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Value: value{"x"}}))
	var got value
	message := receive(consumer, 1)[0]
	hold(message.GetSchemaValue(&got) == nil, "value")
	equal(got, value{"x"})
	equal(message.SchemaVersion(), make([]byte, 8))
	_, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: pulsar.NewInt32Schema(nil)})
	hold(err != nil && strings.Contains(err.Error(), "IncompatibleSchema"), "another schema: %v", err)
}

func pattern(client pulsar.Client, topic string) {
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{
		TopicsPattern: topic + "-any-.*", SubscriptionName: "s", AutoDiscoveryPeriod: 100 * time.Millisecond,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}))
	for _, one := range []string{"-any-1", "-other", "-any-2"} {
		producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic + one}))
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(one)}))
	}
	got := strings.Split(words(receive(consumer, 2)), " ")
	sort.Strings(got)
	equal(got, []string{"-any-1", "-any-2"})
	consumer.Close()
}

func unloaded(client pulsar.Client, topic string) {
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"}))
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 10}))
	sent := make(chan int)
	go func() { sendAll(producer, numbered(3000)); close(sent) }()
	ask("PUT", "namespaces/"+namespace+"/unload")
	<-sent
	for next := 0; next < 3000; {
		message := receive(consumer, 1)[0]
		number := 0
		must(fmt.Sscan(string(message.Payload()), &number))
		hold(number <= next, "%d came, %d did not", number, next)
		if number == next {
			next++
		}
		hold(consumer.Ack(message) == nil, "ack")
	}
}

// Nobody else is there: this client's producer that loses its topic so can keep Close waiting for ever, and as it does
// not know REACHED_END_OF_TOPIC a reader connects anew for ever.
func terminated(client pulsar.Client, topic string) {
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, SendTimeout: wait}))
	sendAll(producer, numbered(2))
	producer.Close()
	ask("POST", strings.Replace(topic, "://", "/", 1)+"/terminate")
	_, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	hold(err != nil && strings.Contains(err.Error(), "TopicTerminated"), "a terminated topic: %v", err)
}

func noTransactions(_ pulsar.Client, _ string) {
	options := pulsar.ClientOptions{URL: os.Args[1], EnableTransaction: true, OperationTimeout: wait}
	_, err := pulsar.NewClient(options)
	hold(err != nil, "transactions are taken")
}
