from qpid.messaging import Connection, Message


def send(sender, key, message):
    message.properties["ticker"] = key
    sender.send(message)


conn = Connection("localhost")
conn.open()
sess = conn.session()
tx = sess.sender("prices;{create:always, node:{type:queue,x-declare:{arguments:{'qpid.last_value_queue_key':ticker}}}}")

msg = Message("Content")
send(tx, "key1", msg)
send(tx, "key2", msg)
send(tx, "key3", msg)
send(tx, "key4", msg)
send(tx, "key2", msg)
send(tx, "key1", msg)

conn.close()
