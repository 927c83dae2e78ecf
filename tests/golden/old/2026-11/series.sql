BEGIN TRANSACTION;
CREATE TABLE sfumato_account (
        id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
        sequence BIGINT NOT NULL,
        head VARCHAR(64) NOT NULL,
        spent BIGINT NOT NULL,
        total BIGINT NOT NULL,
        CONSTRAINT never_overspent CHECK (spent >= 0 AND spent <= total));
INSERT INTO "sfumato_account" VALUES(1,8,'88d37c3be7c13152417e858f186a800ea7469acb292e83e0aa798fb12283e2bb',50232242311543725,372654330048000000);
CREATE TABLE sfumato_allowance (
        analyst VARCHAR(200) NOT NULL PRIMARY KEY,
        budget TEXT NOT NULL,
        spent BIGINT NOT NULL,
        pure_spent BIGINT);
CREATE TABLE sfumato_answer (
        debit BIGINT NOT NULL PRIMARY KEY,
        data BLOB NOT NULL);
INSERT INTO "sfumato_answer" VALUES(1,X'7B22746573746564223A20352C2022616C65727473223A205B312C20345D2C20226E756D62657273223A206E756C6C7D');
INSERT INTO "sfumato_answer" VALUES(3,X'626567756E');
CREATE TABLE sfumato_free (
        key VARCHAR(200) NOT NULL PRIMARY KEY,
        sequence BIGINT NOT NULL,
        data BLOB NOT NULL);
INSERT INTO "sfumato_free" VALUES('watch step 1',5,X'6E756C6C');
INSERT INTO "sfumato_free" VALUES('watch step 2',6,X'5B312C2037373536345D');
INSERT INTO "sfumato_free" VALUES('watch rest 4',7,X'7B7D');
CREATE TABLE sfumato_record (
        sequence BIGINT NOT NULL PRIMARY KEY,
        hash VARCHAR(64) NOT NULL,
        text TEXT NOT NULL);
INSERT INTO "sfumato_record" VALUES(0,'69af1ccb7e0e95c20105efb6173bedc07fac2fb9ccb61d96a0faea5e4c828b05','{"budget":{"delta":"1/1000000","epsilon":"9"},"kind":"opened","neighbours":"add-remove","previous":"0000000000000000000000000000000000000000000000000000000000000000","pure_spent":null,"sequence":0,"spent":0,"table_id":"series","time":"2026-11-17T22:18:49+00:00","unit":"event","version":3}');
INSERT INTO "sfumato_record" VALUES(1,'66e27f7b0ea5f25c31e112cdc4e23863899a7e3e81095172c0c23bc60bbac62e','{"cost":[{"epsilon":"5098477301402928045621248/10196954602806118702624845","kind":"pure","steps":1}],"key":"watch ee975928f817e67bf1c6b4da5879c74409c710fcf9ea8d9e67dc670037d2d316","kind":"debited","owner":"another-machine its-boot its-namespace 20223 162697","previous":"69af1ccb7e0e95c20105efb6173bedc07fac2fb9ccb61d96a0faea5e4c828b05","pure_spent":null,"request":"{\"budget\":{\"delta\":\"1/1000000000\",\"epsilon\":\"1/2\"},\"epochs\":1,\"law\":{\"discoveries\":2,\"is_monotone\":true,\"offset\":1424,\"query\":[\"exponential\",\"1792160549745/1073741824\"],\"reach\":null,\"sensitivity\":256,\"threshold\":[\"exponential\",\"5689755085981/4294967296\"]},\"limits\":\"d353edaf83c8f372d8a4db85db94cf530915a9ceddd03caf25a845c48ac3b9f5\",\"mechanism\":\"sparse vector\",\"neighbours\":\"add-remove\",\"number\":null,\"queries\":5,\"watch\":\"above\"}","sequence":1,"spent":20703018335999467,"time":"2026-11-17T22:18:49+00:00","unit":"event","version":3}');
INSERT INTO "sfumato_record" VALUES(2,'646361a6c916db70eea12ca1c32eeaec50db6aedb5ac747801250f0e4e69de9e','{"answer_sha256":"7fdc66c7ad5e288ef771d0b1b6c49bfc77e468c597437575ee31a97fc0a18fa2","debit":1,"kind":"answered","previous":"66e27f7b0ea5f25c31e112cdc4e23863899a7e3e81095172c0c23bc60bbac62e","pure_spent":null,"sequence":2,"spent":20703018335999467,"time":"2026-11-17T22:18:49+00:00","version":3}');
INSERT INTO "sfumato_record" VALUES(3,'1d90122c77340229b393311486f721514793f26f9015a908db3cd0e337ff7941','{"cost":[{"epsilon":"40787818411222324853342208/163151273644894941467771521","kind":"pure","steps":1},{"epsilon":"1/8","kind":"pure","steps":256},{"epsilon":"1/8","kind":"pure","steps":256}],"key":"watch","kind":"debited","owner":"another-machine its-boot its-namespace 20223 162697","previous":"646361a6c916db70eea12ca1c32eeaec50db6aedb5ac747801250f0e4e69de9e","pure_spent":null,"request":"{\"begun\":\"watch\",\"budget\":{\"delta\":\"1/1000000000\",\"epsilon\":\"1/2\"},\"epochs\":1,\"law\":{\"discoveries\":2,\"is_monotone\":true,\"offset\":3430,\"query\":[\"exponential\",\"14337284397961/4294967296\"],\"reach\":null,\"sensitivity\":256,\"threshold\":[\"exponential\",\"11379510171961/4294967296\"]},\"limits\":\"8a579a0035a1856e8f8638cc1d0739d459740788e00d7eb78510b93bdf25ee18\",\"mechanism\":\"sparse vector\",\"neighbours\":\"add-remove\",\"number\":[\"laplace\",\"2048\"],\"queries\":6,\"watch\":\"above\"}","sequence":3,"spent":41406036671999110,"time":"2026-11-17T22:18:49+00:00","unit":"event","version":3}');
INSERT INTO "sfumato_record" VALUES(4,'7a0d51c0d4412241dbb66176f3b8addfe6a5162e30e6170d1a95cf387259dc72','{"answer_sha256":"7bc6220d36ab0e425eecd5e1b916c44e62c71f9379f650ea0d843fdbf8ff2e27","debit":3,"kind":"answered","previous":"1d90122c77340229b393311486f721514793f26f9015a908db3cd0e337ff7941","pure_spent":null,"sequence":4,"spent":41406036671999110,"states":[{"hmac":"fb998623ab4e60b76fabf8643aeacbafcd53de123b3966ee410322f9fefba647","name":"watch","version":1}],"time":"2026-11-17T22:18:49+00:00","version":3}');
INSERT INTO "sfumato_record" VALUES(5,'33bd43886fe18cd2af959f1944b6718feabf73a8d45150e4510302d84ce1bef4','{"answer_sha256":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","debit":3,"key":"watch step 1","kind":"kept","previous":"7a0d51c0d4412241dbb66176f3b8addfe6a5162e30e6170d1a95cf387259dc72","pure_spent":null,"request":"{\"step\":1,\"watch\":\"watch\"}","sequence":5,"spent":41406036671999110,"states":[{"hmac":"814c304b77565dadba16d5a51b425c46309a27c5384dd8b508325211dd0550cc","name":"watch","version":2}],"time":"2026-11-17T22:18:49+00:00","version":3}');
INSERT INTO "sfumato_record" VALUES(6,'469e16654b02af73f1a0eae0fb9985d3114691e2ce9024f3f96e1636ae50bd24','{"answer_sha256":"587d82d5c138612efb3237e926771ccd3a07ddfeb99e4a59941ccc1176349264","debit":3,"key":"watch step 2","kind":"kept","previous":"33bd43886fe18cd2af959f1944b6718feabf73a8d45150e4510302d84ce1bef4","pure_spent":null,"request":"{\"step\":2,\"watch\":\"watch\"}","sequence":6,"spent":41406036671999110,"states":[{"hmac":"72f3f15349ccb6ba0fdc7395d86d601b2ca502c747292b89555cd4207c0ac862","name":"watch","version":3}],"time":"2026-11-17T22:18:49+00:00","version":3}');
INSERT INTO "sfumato_record" VALUES(7,'7b1929fa3634cf7d59c412d103f088b9f74790b0e95c35882448b513feef85a4','{"answer_sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","debit":3,"key":"watch rest 4","kind":"kept","previous":"469e16654b02af73f1a0eae0fb9985d3114691e2ce9024f3f96e1636ae50bd24","pure_spent":null,"request":"{\"rest\":4,\"watch\":\"watch\"}","sequence":7,"spent":41406036671999110,"states":[{"hmac":"b5e9a2a427b9d447ccdc5dd4934103d46b30b4591625bef7d43f1859a06fee2b","name":"watch","version":4}],"time":"2026-11-17T22:18:49+00:00","version":3}');
INSERT INTO "sfumato_record" VALUES(8,'88d37c3be7c13152417e858f186a800ea7469acb292e83e0aa798fb12283e2bb','{"cost":[{"kind":"gaussian","mu_squared":"608545406686637247184264665824998217231909499497039221130625/9736727285415376550907445095025263493025363804947889671634944"}],"key":"stream 3bcc202aa5f3408f 61b3c70384caa213","kind":"debited","owner":"another-machine its-boot its-namespace 20223 162697","previous":"7b1929fa3634cf7d59c412d103f088b9f74790b0e95c35882448b513feef85a4","pure_spent":41406036671999110,"request":"{\"budget\":{\"mu\":\"1/4\"},\"largest\":1,\"neighbours\":\"add-remove\",\"noise\":[\"gaussian\",16777228,22],\"strategy\":\"optimal\",\"stream\":8,\"table\":\"60a080e073b20746f15e484885275b0ab3d8f04641e56039ce6f57f24f68bc0f\",\"window\":null}","sequence":8,"spent":50232242311543725,"time":"2026-11-17T22:18:50+00:00","unit":"event","version":3}');
CREATE TABLE sfumato_request (
        key VARCHAR(200) NOT NULL PRIMARY KEY,
        debit BIGINT NOT NULL,
        state VARCHAR(8) NOT NULL,
        closed BIGINT);
INSERT INTO "sfumato_request" VALUES('watch ee975928f817e67bf1c6b4da5879c74409c710fcf9ea8d9e67dc670037d2d316',1,'answered',2);
INSERT INTO "sfumato_request" VALUES('watch',3,'answered',4);
INSERT INTO "sfumato_request" VALUES('stream 3bcc202aa5f3408f 61b3c70384caa213',8,'reserved',NULL);
CREATE TABLE sfumato_state (
        name VARCHAR(200) NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        sequence BIGINT NOT NULL,
        salt BLOB NOT NULL,
        data BLOB NOT NULL);
INSERT INTO "sfumato_state" VALUES('watch',4,7,X'CC3EFAED54C03EF00ACAA87EECD1BC4DFF2E4281E5DF942D1BB7CB25AA175C6D',X'7B227068617365223A202261742072657374222C20226F776E6572223A2022616E6F746865722D6D616368696E65206974732D626F6F74206974732D6E616D65737061636520323032323320313632363937222C2022746F6B656E223A202239383937336237316336303734316665222C202273746570223A20322C2022616C65727473223A205B5B312C2037373536345D5D2C2022626567756E223A20312C202266696E646572223A20227B5C22626567756E5C223A312C5C226F7765645C223A302C5C22766563746F725C223A5C227B5C5C5C226C61775C5C5C223A7B5C5C5C22646973636F7665726965735C5C5C223A322C5C5C5C2269735F6D6F6E6F746F6E655C5C5C223A747275652C5C5C5C226F66667365745C5C5C223A333433302C5C5C5C2271756572795C5C5C223A5B5C5C5C226578706F6E656E7469616C5C5C5C222C5C5C5C2231343333373238343339373936312F343239343936373239365C5C5C225D2C5C5C5C2272656163685C5C5C223A6E756C6C2C5C5C5C2273656E73697469766974795C5C5C223A3235362C5C5C5C227468726573686F6C645C5C5C223A5B5C5C5C226578706F6E656E7469616C5C5C5C222C5C5C5C2231313337393531303137313936312F343239343936373239365C5C5C225D7D2C5C5C5C226C6566745C5C5C223A312C5C5C5C226E6F6973655C5C5C223A5C5C5C22313034385C5C5C222C5C5C5C2276657273696F6E5C5C5C223A317D5C227D227D');
COMMIT;
